#!/bin/sh
# Writes the Homebrew formula for the archives in a folder: formula.sh VERSION DOWNLOADS FOLDER >TAP/Formula/ml.rb
set -eu

[ $# -eq 3 ] || {
  echo "usage: formula.sh VERSION DOWNLOADS FOLDER" >&2
  exit 2
}
version=$1 downloads=$2 folder=$3

# The address and the hash of the archive for a target, so far to the right.
archive() {
  file=ml-$version-$1.tar.gz
  [ -f "$folder/$file.sha256" ] || {
    echo "formula.sh: there is no $file.sha256 in $folder" >&2
    exit 1
  }
  printf '%surl "%s/%s"\n' "$2" "$downloads" "$file"
  printf '%ssha256 "%s"\n' "$2" "$(cut -d ' ' -f 1 "$folder/$file.sha256")"
}

mac26=$(archive aarch64-apple-darwin-macos26 '      ')
mac15=$(archive aarch64-apple-darwin-macos15 '      ')
arm=$(archive aarch64-unknown-linux-gnu '      ')
intel=$(archive x86_64-unknown-linux-gnu '      ')

cat <<END
# Language models on MLX, from the terminal and as a server.
class Ml < Formula
  desc "Runs language models on MLX"
  homepage "$downloads"
  version "$version"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    depends_on arch: :arm64
    depends_on macos: :sequoia

    # MLX for macOS 26.2 and later knows the matrix units of an M5.
    if OS.mac? && MacOS.full_version >= "26.2"
$mac26
    else
$mac15
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
    # A service has no arguments, and the flags of \`ml serve\` have variables.
    (libexec/"serve").write <<~SH
      #!/bin/sh
      set -ae
      . "#{etc}/ml-serve.env"
      exec "#{opt_bin}/ml" serve
    SH
    chmod 0755, libexec/"serve"
    settings = buildpath/"ml-serve.env"
    settings.write "# Settings of \`ml serve\`, one a line: ML_SERVE_MODELS_DIR=/Users/ada/models\n"
    etc.install settings
  end

  def caveats
    <<~EOS
      \`brew services start ml\` serves on port 8080 of this machine: the built-in model, or what
      #{etc}/ml-serve.env names.
    EOS
  end

  service do
    run opt_libexec/"serve"
    keep_alive crashed: true
    log_path var/"log/ml.log"
    error_log_path var/"log/ml.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/ml --version")
    system bin/"ml", "generate", "Tell me a story", "--max-tokens", "8"
  end
end
END
