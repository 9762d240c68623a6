#!/bin/bash
# Written by `ddpxx slurm`; sbatch FILE starts it.
#SBATCH --job-name=sweep
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=2:00:00
#SBATCH --signal=USR1@60
#SBATCH --requeue
#SBATCH --array=0-3%2
#SBATCH --open-mode=append

job=$SLURM_ARRAY_TASK_ID
folder=/shared/sweep/$job
shown=()
case $job in
  0) arguments=(--config-name=gpt2_train_cfg optimizer.learning_rate=1e-3 training.seed=0) ;;
  1) arguments=(--config-name=gpt2_train_cfg optimizer.learning_rate=1e-3 training.seed=1) ;;
  2) arguments=(--config-name=gpt2_train_cfg optimizer.learning_rate=3e-4 training.seed=0) ;;
  3) arguments=(--config-name=gpt2_train_cfg optimizer.learning_rate=3e-4 training.seed=1) ;;
  *) echo "there is no job $job" >&2; exit 2 ;;
esac

for each in "$folder" "$folder"/{overrides.yaml,log,".status.$SLURM_JOB_ID"}; do
  if [[ -L $each ]]; then
    echo "refusing to write to $each: it is a symbolic link; remove it" >&2
    exit 4
  fi
done
mkdir -p "$folder" || exit 4
q="'"
overrides='[]'
if ((${#shown[@]} == 0)); then shown=("${arguments[@]}"); fi
if ((${#shown[@]} > 0)); then overrides=$(printf -- "- '%s'\n" "${shown[@]//$q/$q$q}"); fi
if [[ -e $folder/overrides.yaml && $(<"$folder/overrides.yaml") != "$overrides" ]]; then
  echo "$folder belongs to another sweep; choose another --sweep-dir" >&2
  exit 2
fi
if grep -qsx 'exit_code: 0' "$folder/status"; then exit 0; fi
rm -f "$folder/status"
printf '%s\n' "$overrides" >"$folder/overrides.yaml" || exit 4
export DDPXX_RUN_FOLDER=$folder
if [[ -n $SLURM_CPUS_PER_TASK ]]; then export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK; fi

srun --kill-on-bad-exit=1 ./mingpt "${arguments[@]}" >>"$folder/log" 2>&1 </dev/null
code=$?
printf 'exit_code: %d\nseconds: %d\n' "$code" "$SECONDS" >"$folder/.status.$SLURM_JOB_ID" &&
  mv "$folder/.status.$SLURM_JOB_ID" "$folder/status"
# 75: the ranks were asked to stop and have saved; the job resumes from there.
if ((code == 75)); then scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"; fi
exit "$code"
