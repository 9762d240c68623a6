#!/bin/bash
# Starts ddpxx-run on each node of a job, as the tutorial series starts torchrun:
#
#     RANKS_PER_NODE=4 sbatch --nodes=2 --gpus-per-node=4 agents.sh PROGRAM [ARGUMENTS]
#
# Without RANKS_PER_NODE a node has one rank. DDPXX_RUN names a ddpxx-run that is not in PATH. The ranks of a node share the
# cores of --cpus-per-task.
# ddpxx-run starts the ranks of its node, and all ranks again if one fails. Without restarts, a script of `ddpxx slurm` is
# simpler: there srun starts the ranks themselves.
#SBATCH --job-name=ddpxx
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Two jobs may have the same first node, so each job has a port of its own.
port=$((20000 + SLURM_JOB_ID % 10000))
echo "place of the meeting: $head_node:$port"

# The agent of a node has all cores of its job there, and the ranks have those of their agent.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
srun "${DDPXX_RUN:-ddpxx-run}" --nnodes "$SLURM_JOB_NUM_NODES" \
  --nproc-per-node "${RANKS_PER_NODE:-1}" --max-restarts 3 --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d \
  --rdzv-endpoint "$head_node:$port" "$@"
code=$?
# 75: the ranks were asked to stop and have saved; the job resumes from there.
if ((code == 75)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
