#!/bin/bash
# Several learners under SLURM, one on each node:
#
#   sbatch --job-name six-games --nodes 2 deploy/slurm.sh --env six --use_popart --total_steps 3e9
#
# The arguments are flags of torchbeast.polybeast. Runs go to $SAVEDIR, which all nodes must see. The job
# is requeued when its time is over, and resumes: its name is the name of the run. So give each run a name
# of its own. With GPUs add --gpus-per-node 1: each learner uses one.
#SBATCH --job-name=torchbeast
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail

SAVEDIR=${SAVEDIR:-$HOME/logs/torchbeast}
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head=${hosts%%$'\n'*}
# Another job may have its first rank on the same node.
port=$((20000 + SLURM_JOB_ID % 10000))

# SLURM sends SIGUSR1 to this shell two minutes before the end. The ranks save the run then.
requeue() {
    scancel --signal=TERM "$SLURM_JOB_ID"
    wait "$training" || true
    scontrol requeue "$SLURM_JOB_ID"
}
trap requeue USR1
# scancel and preemption send SIGTERM, to the ranks, too.
trap 'wait "$training"' TERM

# Not all versions of srun take the number of cores from sbatch.
srun --cpus-per-task "$SLURM_CPUS_PER_TASK" torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 1 --max-restarts 3 \
    --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head:$port" \
    -m torchbeast.polybeast --xpid "$SLURM_JOB_NAME" --savedir "$SAVEDIR" --cores "$SLURM_CPUS_PER_TASK" "$@" &
training=$!
wait "$training"
