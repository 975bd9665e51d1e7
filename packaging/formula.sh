#!/bin/sh
# Writes the Homebrew formula for the archives in a folder: formula.sh VERSION DOWNLOADS FOLDER >ml.rb
set -eu

[ $# -eq 3 ] || {
  echo "usage: formula.sh VERSION DOWNLOADS FOLDER" >&2
  exit 2
}
version=$1 downloads=$2 folder=$3

# The address and the hash of the archive for a target.
archive() {
  file=ml-$version-$1.tar.gz
  [ -f "$folder/$file.sha256" ] || {
    echo "formula.sh: there is no $file.sha256 in $folder" >&2
    exit 1
  }
  printf '      url "%s/%s"\n' "$downloads" "$file"
  printf '      sha256 "%s"\n' "$(cut -d ' ' -f 1 "$folder/$file.sha256")"
}

mac=$(archive aarch64-apple-darwin)
arm=$(archive aarch64-unknown-linux-gnu)
intel=$(archive x86_64-unknown-linux-gnu)

cat <<END
# Language models on MLX, from the terminal and as a server.
class Ml < Formula
  desc "Runs language models on MLX"
  homepage "$downloads"
  version "$version"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    on_arm do
$mac
    end
  end
  on_linux do
    on_arm do
$arm
    end
    on_intel do
$intel
    end
  end

  def install
    # The program finds its libraries beside itself.
    libexec.install Dir["*"]
    bin.install_symlink libexec/"bin/ml"
    man1.install_symlink Dir[libexec/"share/man/man1/*"]
    bash_completion.install_symlink libexec/"share/bash-completion/completions/ml"
    zsh_completion.install_symlink libexec/"share/zsh/site-functions/_ml"
    fish_completion.install_symlink libexec/"share/fish/vendor_completions.d/ml.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ml --version")
    system bin/"ml", "generate", "Tell me a story", "--max-tokens", "8"
  end
end
END
