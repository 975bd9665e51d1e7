//! The link arguments and search paths for MLX on each operating system.

use std::path::Path;

/// The needs of an operating system's linker and loader.
#[derive(Debug)]
pub struct Linkage {
    /// File name of the MLX library.
    pub library: &'static str,
    /// The C++ standard library.
    pub cxx: &'static str,
    /// Frameworks to link.
    pub frameworks: &'static [&'static str],
    /// Linker arguments of executables.
    pub args: &'static [&'static str],
    /// Entries relative to the executable, in the order in which they are tried.
    pub rpath_origins: &'static [&'static str],
}

pub(crate) const LINUX: Linkage = Linkage {
    library: "libmlx.so",
    cxx: "stdc++",
    frameworks: &[],
    // RUNPATH rather than RPATH: LD_LIBRARY_PATH comes first, so one binary runs
    // on a CPU, and on a GPU when the CUDA build of libmlx.so is put before ours.
    // That build can be linked where its own libraries (cuDNN, NCCL) are not installed.
    args: &["-Wl,--enable-new-dtags", "-Wl,--allow-shlib-undefined"],
    rpath_origins: &["$ORIGIN", "$ORIGIN/../lib"],
};

pub(crate) const MACOS: Linkage = Linkage {
    library: "libmlx.dylib",
    cxx: "c++",
    frameworks: &["Foundation", "Metal"],
    args: &[],
    rpath_origins: &["@loader_path", "@loader_path/../lib"],
};

impl Linkage {
    /// Linker arguments with which an executable finds the library beside it,
    /// in `../lib`, or in `lib_dir` if there is one, in this order. On macOS it says that it starts
    /// from the release `deployment` on: rustc would say 11.0, where MLX does not start.
    pub fn executable_args(&self, lib_dir: Option<&Path>, deployment: Option<&str>) -> Vec<String> {
        let origins = self.rpath_origins.iter().map(|entry| (*entry).to_owned());
        let entries = origins.chain(lib_dir.map(|folder| folder.display().to_string()));
        let args = self.args.iter().map(|arg| (*arg).to_owned());
        let oldest = deployment.map(|release| format!("-mmacosx-version-min={release}"));
        args.chain(entries.map(|entry| format!("-Wl,-rpath,{entry}"))).chain(oldest).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_look_beside_themselves_first() {
        let linux = LINUX.executable_args(Some(Path::new("/t/lib")), None);
        assert_eq!(
            linux,
            [
                "-Wl,--enable-new-dtags",
                "-Wl,--allow-shlib-undefined",
                "-Wl,-rpath,$ORIGIN",
                "-Wl,-rpath,$ORIGIN/../lib",
                "-Wl,-rpath,/t/lib"
            ]
        );
        let macos = MACOS.executable_args(Some(Path::new("/t/lib")), None);
        assert_eq!(
            macos,
            ["-Wl,-rpath,@loader_path", "-Wl,-rpath,@loader_path/../lib", "-Wl,-rpath,/t/lib"]
        );
        let relocatable = MACOS.executable_args(None, Some("15.0"));
        assert_eq!(
            relocatable,
            [
                "-Wl,-rpath,@loader_path",
                "-Wl,-rpath,@loader_path/../lib",
                "-mmacosx-version-min=15.0"
            ]
        );
    }
}
