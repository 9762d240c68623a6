#!/bin/bash
# Written by `ddpxx slurm`; sbatch FILE starts it.
#SBATCH --job-name=long
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=1:00:00
#SBATCH --output=%x-%j.out
#SBATCH --signal=USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

if [[ -n $SLURM_CPUS_PER_TASK ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi
srun --kill-on-bad-exit=1 ./mingpt --config-name=gpt2_train_cfg training.save_dir=/shared/long training.save_every_time=10m
code=$?
# 75: the ranks were asked to stop and have saved; the job resumes from there.
if ((code == 75)); then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$code"
