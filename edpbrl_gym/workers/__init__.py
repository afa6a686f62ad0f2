"""Workers: processes of this machine, for some work or as long as a server runs, and those of a Dask cluster."""

from edpbrl_gym.workers.cluster import ClusterError, DaskCluster
from edpbrl_gym.workers.kept import KeptProcesses
from edpbrl_gym.workers.processes import LocalProcesses, WorkersLostError

__all__ = ["ClusterError", "DaskCluster", "KeptProcesses", "LocalProcesses", "WorkersLostError"]
