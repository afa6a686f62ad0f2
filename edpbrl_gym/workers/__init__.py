"""Workers: processes of this machine, and those of a Dask cluster."""

from edpbrl_gym.workers.cluster import ClusterError, DaskCluster
from edpbrl_gym.workers.processes import LocalProcesses, WorkersLostError

__all__ = ["ClusterError", "DaskCluster", "LocalProcesses", "WorkersLostError"]
