#!/usr/bin/env bash
# Runs all tests that are ignored where there is no NVIDIA GPU, each in a process of its own, and sums up.
# They are in the programs beside this script. Those that run kernels on a processor are left out. MLX's CUDA build comes first in LD_LIBRARY_PATH.
# SECONDS_FOR_A_TEST bounds each, 300 where it is not set. A word as an argument chooses the tests whose names contain it.
set -uo pipefail
cd "$(dirname "$0")"
passed=0
failed=()
for program in ./*; do
  [[ -x "$program" && "$program" != *.sh ]] || continue
  while read -r name; do
    started=$SECONDS
    echo "==> ${program#./} $name"
    # A process that ends by a signal, or does not end, is a test that failed.
    if timeout "${SECONDS_FOR_A_TEST:-300}" "$program" --exact "$name" --ignored --nocapture --test-threads=1; then
      passed=$((passed + 1))
    else
      failed+=("${program#./} $name")
    fi
    echo "    $((SECONDS - started)) s"
  done < <("$program" --list --ignored | sed -n 's/: test$//p' | grep -vF ::emulated:: | grep -F -- "${1:-}")
done
echo
echo "$passed passed, ${#failed[@]} failed"
for name in ${failed[@]+"${failed[@]}"}; do
  echo "failed: $name"
done
(( passed > 0 && ${#failed[@]} == 0 ))
