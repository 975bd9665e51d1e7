#!/bin/sh
# Installs ml @VERSION@ for this user: into ~/.local, or into the folder that ML_PREFIX names.
#   sh install.sh                fetches the archive for this machine, checks it, installs it
#   sh install.sh --move-aside   the same; files of others in its places get the ending .before-ml
#   sh install.sh --uninstall    takes away what was installed
# ML_DOWNLOADS names another place to download from; ML_VARIANT=cuda takes the archive for NVIDIA GPUs.
set -eu

version=@VERSION@
downloads=${ML_DOWNLOADS:-@DOWNLOADS@}
prefix=${ML_PREFIX:-${HOME:?HOME is not set: set ML_PREFIX to a folder}/.local}
home=$prefix/lib/ml

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# The file at a URL, into a file.
fetch() {
  if command -v curl >/dev/null 2>&1; then
    curl --fail --location --silent --show-error --output "$2" "$1"
  elif command -v wget >/dev/null 2>&1; then
    wget --quiet --output-document "$2" "$1"
  else
    fail "curl or wget is needed: install one of them"
  fi
}

sha256() {
  if command -v sha256sum >/dev/null 2>&1; then
    sha256sum "$1"
  else
    shasum --algorithm 256 "$1"
  fi | cut -d ' ' -f 1
}

# The files of a folder that get links below the prefix: bin/ml, the manual, completions.
links() {
  (cd "$1" && find bin share/man share/bash-completion share/zsh share/fish -type f)
}

# Of the places of those links, the ones that hold something else.
foreign() {
  links "$1" | while read -r file; do
    [ -e "$prefix/$file" ] || [ -L "$prefix/$file" ] || continue
    [ "$(readlink "$prefix/$file" || true)" = "$home/$file" ] || echo "$prefix/$file"
  done
}

uninstall() {
  [ -d "$home" ] || fail "nothing is installed in $home"
  links "$home" | while read -r file; do
    if [ "$(readlink "$prefix/$file" || true)" = "$home/$file" ]; then rm "$prefix/$file"; fi
  done
  rm -r "$home"
}

aside=
case ${1:-} in
  '') ;;
  --move-aside) aside=yes ;;
  --uninstall)
    uninstall
    exit
    ;;
  *) fail "unknown argument $1" ;;
esac

# The end of the archive's name for this release of macOS: MLX differs by it.
of_macos() {
  release=$(sw_vers -productVersion)
  major=${release%%.*}
  minor=${release#"$major"}
  minor=${minor#.}
  minor=${minor%%.*}
  case $major${minor:=0} in
    *[!0-9]*) fail "sw_vers names no release of macOS: $release" ;;
  esac
  if [ "$major" -gt 26 ] || { [ "$major" -eq 26 ] && [ "$minor" -ge 2 ]; }; then
    echo macos26
  elif [ "$major" -ge 15 ]; then
    echo macos15
  else
    fail "there is no archive for macOS $release, which is older than 15: build ml from its sources"
  fi
}

case "$(uname -s) $(uname -m)" in
  'Linux x86_64') target=x86_64-unknown-linux-gnu ;;
  'Linux aarch64') target=aarch64-unknown-linux-gnu ;;
  'Darwin arm64')
    release=$(of_macos)
    target=aarch64-apple-darwin-$release
    ;;
  *) fail "there is no archive for $(uname -s) on $(uname -m): build ml from its sources" ;;
esac
name=ml-$version-$target${ML_VARIANT:+-$ML_VARIANT}

mkdir -p "$prefix/lib"
work=$(mktemp -d "$prefix/lib/.ml-XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
fetch "$downloads/$name.tar.gz" "$work/$name.tar.gz"
fetch "$downloads/$name.tar.gz.sha256" "$work/sha256"
expected=$(cut -d ' ' -f 1 "$work/sha256")
found=$(sha256 "$work/$name.tar.gz")
[ "$found" = "$expected" ] || fail "$name.tar.gz has the SHA-256 $found, not $expected: fetch it again"
tar -xzf "$work/$name.tar.gz" -C "$work"

# Only a program that starts takes the place of one that is there.
"$work/$name/bin/ml" --version >"$work/version" 2>&1 ||
  fail "ml does not start here: $(cat "$work/version")"
foreign "$work/$name" >"$work/foreign"
if [ -s "$work/foreign" ] && [ -z "$aside" ]; then
  fail "not of ml, and in its place:
$(cat "$work/foreign")
move it away, or let it be moved to .before-ml: sh install.sh --move-aside"
fi
while read -r file; do
  [ ! -e "$file.before-ml" ] || fail "$file.before-ml is there already: move it away first"
  mv "$file" "$file.before-ml"
  echo "moved aside: $file.before-ml"
done <"$work/foreign"
if [ -d "$home" ]; then uninstall; fi
mv "$work/$name" "$home"
links "$home" | while read -r file; do
  mkdir -p "$prefix/$(dirname "$file")"
  ln -sf "$home/$file" "$prefix/$file"
done

echo "installed: $prefix/bin/ml"
case :$PATH: in
  *:"$prefix/bin":*) ;;
  *) echo "$prefix/bin is not in PATH: add it" ;;
esac
# bash and fish look there by themselves.
functions=$prefix/share/zsh/site-functions
if command -v zsh >/dev/null 2>&1 &&
  ! grep -qsF "$functions" "${ZDOTDIR:-${HOME:-}}/.zshrc"; then
  echo "completions in zsh need this line in .zshrc, before compinit: fpath=($functions \$fpath)"
fi
