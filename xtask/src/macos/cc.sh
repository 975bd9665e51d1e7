#!/bin/sh
# A C compiler and linker for macOS, as the crate `cc` and rustc start one. `ML_ZIG_PYTHON` is the Python that has
# ziglang, and `ML_ZIG_TARGET` the target: other ways to name it are left out. So is iconv, which nothing here calls.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  case $argument in
    -arch)
      shift
      left=$((left - 1))
      ;;
    -mmacosx-version-min=* | --target=* | -liconv) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "$ML_ZIG_PYTHON" -m ziglang cc -target "$ML_ZIG_TARGET" "$@"
