//! Provision from start to end, with a wheel made on the spot and a `python3` that
//! stands between us and the network.

use std::sync::Mutex;

use super::*;
use crate::platform::PLATFORMS;
use crate::target::Release;
use crate::{HOST, fake};

/// A cache folder, a wheel, and a Python whose pip hands the wheel out.
struct Bench {
    dir: tempfile::TempDir,
    platforms: &'static [Platform],
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        let library = "\0$ORIGIN/../../mlx_cpu.libs\0";
        let version = "#define MLX_VERSION_MAJOR 0\n#define MLX_VERSION_MINOR 32\n\
                       #define MLX_VERSION_PATCH 2\n";
        for (file, text) in [
            ("mlx/lib/libmlx.so", library),
            ("mlx/include/mlx/mlx.h", ""),
            ("mlx/include/mlx/version.h", version),
            ("mlx_cpu.libs/libblas.so", "blas"),
        ] {
            let path = tree.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let wheel = dir.path().join("mlx_cpu-0.32.2-py3-none-any.whl");
        let zipped = std::process::Command::new("python3")
            .args(["-m", "zipfile", "-c"])
            .args([&wheel, &tree.join("mlx"), &tree.join("mlx_cpu.libs")])
            .status();
        assert!(zipped.unwrap().success());
        let hash = hex(&Sha256::digest(fs::read(&wheel).unwrap()));
        let platform = Platform {
            arch: env::consts::ARCH,
            sha256: hash.leak(),
            ..PLATFORMS.iter().find(|p| p.variant == Variant::Cpu).unwrap().clone()
        };
        let platforms = Box::leak(Box::new([platform]));
        let bench = Self { dir, platforms };
        // `--dest FOLDER PACKAGE` ends pip's command line; each download leaves a line.
        bench.set_python(
            "if [ \"$2\" = zipfile ]; then exec python3 \"$@\"; fi
             here=$(dirname \"$0\")
             while [ $# -gt 2 ]; do shift; done
             echo \"$2\" >> \"$here/downloads\"
             cp \"$here\"/*.whl \"$1\"",
        );
        bench
    }

    fn set_python(&self, body: &str) {
        fake::program(self.dir.path(), "python", body);
    }

    fn request(&self) -> Request {
        Request {
            variant: Variant::Cpu,
            source: Source::Any,
            goal: Goal::Fetched,
            platforms: self.platforms,
            target: Target {
                os: "linux".into(),
                arch: env::consts::ARCH.into(),
                os_version: Release::default(),
            },
            triple: HOST.to_owned(),
            cache: self.dir.path().join("mlx"),
            manifest_dir: env!("CARGO_MANIFEST_DIR").into(),
            python: self.dir.path().join("python").into(),
            progress: |_| {},
        }
    }

    fn downloads(&self) -> usize {
        let log = fs::read_to_string(self.dir.path().join("downloads"));
        log.map_or(0, |text| text.lines().count())
    }
}

#[test]
fn the_second_time_finds_everything() {
    let bench = Bench::new();
    let first = provision(&bench.request()).unwrap();
    assert!(first.lib_dir.join("libmlx.so").is_file());
    assert!(first.lib_dir.join("libblas.so").is_file());
    assert!(first.include_dir.join("mlx/mlx.h").is_file());
    assert_eq!(first.mlx_c_dir, None);

    bench.set_python("exit 1");
    let second = provision(&bench.request()).unwrap();
    assert_eq!(second.lib_dir, first.lib_dir);
    assert_eq!(bench.request().lib_dir().unwrap(), first.lib_dir);
    assert_eq!(bench.downloads(), 1);
}

#[test]
fn stamps_are_older_than_the_provision_that_made_them() {
    let bench = Bench::new();
    let start = SystemTime::now();
    let mlx = provision(&bench.request()).unwrap();
    assert_eq!(mlx.stamps.len(), 1);
    for stamp in mlx.stamps {
        assert!(fs::metadata(&stamp).unwrap().modified().unwrap() < start);
    }
}

#[test]
fn a_wheel_that_is_not_the_pinned_one_leaves_nothing_behind() {
    let bench = Bench::new();
    let wheel = bench.dir.path().join("mlx_cpu-0.32.2-py3-none-any.whl");
    let mut bytes = fs::read(&wheel).unwrap();
    bytes.push(0);
    fs::write(&wheel, bytes).unwrap();
    let error = provision(&bench.request()).unwrap_err();
    assert!(matches!(error, Error::WrongHash { .. }), "{error}");
    assert!(!bench.request().root().exists());
}

#[test]
fn a_half_unpacked_wheel_is_unpacked_again() {
    let bench = Bench::new();
    let home = bench.request().home();
    for folder in ["dist/mlx/lib", "dist.partial/mlx/lib"] {
        fs::create_dir_all(home.join(folder)).unwrap();
        fs::write(home.join(folder).join("libmlx.so"), "half").unwrap();
    }
    let mlx = provision(&bench.request()).unwrap();
    assert_ne!(fs::read(mlx.lib_dir.join("libmlx.so")).unwrap(), b"half");
    assert_eq!(bench.downloads(), 1);
}

#[test]
fn a_lost_library_is_fetched_again() {
    let bench = Bench::new();
    let mlx = provision(&bench.request()).unwrap();
    for source in [Source::Any, Source::Wheel] {
        fs::remove_file(mlx.lib_dir.join("libmlx.so")).unwrap();
        provision(&Request { source, ..bench.request() }).unwrap();
        assert!(mlx.lib_dir.join("libmlx.so").is_file());
    }
    assert_eq!(bench.downloads(), 3);
}

#[test]
fn two_provisions_at_once_download_once() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| provision(&bench.request()).unwrap());
        }
    });
    assert_eq!(bench.downloads(), 1);
}

#[test]
fn a_provision_waits_for_another_and_says_so() {
    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let bench = Bench::new();
    let cache = bench.request().cache;
    let held = lock(&cache, |_| {}).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(&cache, |line| LINES.lock().unwrap().push(line.into())));
        while LINES.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap().unwrap();
    });
    assert!(LINES.lock().unwrap()[0].contains("waiting"));
}

#[test]
fn what_a_checkout_left_stays_until_the_wheel_is_asked_for() {
    let bench = Bench::new();
    let mlx = provision(&bench.request()).unwrap();
    let stamp = &mlx.stamps[0];
    fs::write(stamp, "MLX from /src: 1 byte").unwrap();
    provision(&bench.request()).unwrap();
    assert_eq!(bench.downloads(), 1);
    provision(&Request { source: Source::Wheel, ..bench.request() }).unwrap();
    assert_eq!(bench.downloads(), 2);
    assert!(fs::read_to_string(stamp).unwrap().contains("mlx-cpu"));
}

#[test]
fn an_installed_mlx_is_used_where_it_is() {
    let bench = Bench::new();
    let root = bench.dir.path().join("tree/mlx");
    let source = Source::Installed(root.clone());
    let mlx = provision(&Request { source, ..bench.request() }).unwrap();
    assert_eq!(mlx.lib_dir, root.join("lib"));
    assert_eq!(mlx.stamps, [root.join("lib/libmlx.so")]);
    assert_eq!(bench.downloads(), 0);
}

#[test]
fn foreign_processors_and_installed_copies_have_their_own_folders() {
    let bench = Bench::new();
    let own = bench.request();
    assert!(own.home().ends_with("cpu-0.32.2"));
    let target = Target { arch: "riscv64".into(), ..own.target.clone() };
    let foreign = Request { target, ..bench.request() };
    assert!(foreign.home().ends_with("cpu-0.32.2-riscv64"));
    let installed =
        |root: &str| Request { source: Source::Installed(root.into()), ..bench.request() };
    assert_ne!(installed("/a").home(), installed("/b").home());
}
