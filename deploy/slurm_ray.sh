#!/bin/bash
# A learner on the first node of a SLURM job, and environment servers on the cores of all nodes, by Ray:
#
#   sbatch --job-name six-games --nodes 4 deploy/slurm_ray.sh --env six --use_popart --num_actors 960 --total_steps 3e9
#
# The arguments are flags of torchbeast.polybeast. $LEARNER_CORES cores of the first node (8) are the
# learner's. Runs go to $SAVEDIR. The job is requeued when its time is over, and resumes: its name is the
# name of the run. So give each run a name of its own.
#SBATCH --job-name=torchbeast-ray
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --exclusive  # Another job's Ray would have the same ports.
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
set -euo pipefail

SAVEDIR=${SAVEDIR:-$HOME/logs/torchbeast}
export LEARNER_CORES=${LEARNER_CORES:-8}
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export HEAD=${hosts%%$'\n'*}
num_servers=$((SLURM_NNODES * SLURM_CPUS_PER_TASK - LEARNER_CORES))

# Nobody without this token can use the cluster.
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN

# SLURM sends SIGUSR1 to this shell two minutes before the end. The learner saves the run then.
requeue() {
    scancel --signal=TERM "$SLURM_JOB_ID"
    wait "$training" || true
    scontrol requeue "$SLURM_JOB_ID"
}
trap requeue USR1
# scancel and preemption send SIGTERM, to the learner, too.
trap 'wait "$training"' TERM

# Ray's command would end at SIGTERM before the learner has saved.
# shellcheck disable=SC2016
on_each_node='
    trap "" TERM
    cpus=$SLURM_CPUS_PER_TASK
    [ "$SLURM_PROCID" != 0 ] || cpus=$((cpus - LEARNER_CORES))
    exec ray symmetric-run --address "$HEAD:6379" --min-nodes "$SLURM_NNODES" --num-cpus "$cpus" -- "$@"
'
srun --cpus-per-task "$SLURM_CPUS_PER_TASK" bash -c "$on_each_node" - \
    polybeast --cores "$LEARNER_CORES" --ray_address auto --num_servers "$num_servers" \
    --xpid "$SLURM_JOB_NAME" --savedir "$SAVEDIR" "$@" &
training=$!
wait "$training"
