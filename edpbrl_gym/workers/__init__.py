"""Workers: processes of this machine, those of a Dask cluster, and jobs of SLURM."""

from edpbrl_gym.workers.cluster import ClusterError, DaskCluster
from edpbrl_gym.workers.processes import LocalProcesses, WorkersLostError

__all__ = ["ClusterError", "DaskCluster", "LocalProcesses", "WorkersLostError"]
