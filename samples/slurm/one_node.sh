#!/bin/bash
# Written by `ddpxx slurm`; sbatch FILE starts it.
#SBATCH --job-name=one
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=4:00:00
#SBATCH --output=%x-%j.out
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append

if [[ -n $SLURM_CPUS_PER_TASK ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
srun --kill-on-bad-exit=1 ./mingpt --config-name=gpt2_train_cfg training.save_dir=/shared/one
code=$?
# 75: the ranks were asked to stop and have saved; the job resumes from there.
if ((code == 75)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
