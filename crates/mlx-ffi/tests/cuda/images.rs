//! Images of kernels on disk: what a process leaves there, and what the next one does with it.
//!
//! The processes are this program once more, told by the environment to compute a product.
#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use mlx_ffi::cuda::{self, Around, Weights};
use mlx_ffi::{Array, Dtype, ops};

use super::on_cuda::use_cuda;

const COMPUTES: &str = "ML_TEST_COMPUTES";
const NAME: &str = "images::images_are_kept_and_what_is_damaged_is_made_anew";

/// Three rows of ones times a row of twos.
fn compute() {
    use_cuda();
    let ones = |shape: &[i32], value: f32| {
        let count = shape.iter().product::<i32>() as usize;
        ops::astype(&Array::from_f32(&vec![value; count], shape).unwrap(), Dtype::Bf16).unwrap()
    };
    let (x, w) = (ones(&[1, 64], 2.0), ones(&[3, 64], 1.0));
    let y = cuda::one_row(&x, Weights::Dense(&w), &Around::default()).unwrap();
    let y = ops::astype(&y, Dtype::F32).unwrap().to_vec_f32().unwrap();
    assert_eq!(y, [128.0; 3]);
}

/// Lets another process compute, with this cache folder.
fn computes(cache: &Path) {
    let mut process = Command::new(env::current_exe().unwrap());
    process.args(["--exact", NAME, "--ignored", "--nocapture"]).env(COMPUTES, "");
    let done = process.env("XDG_CACHE_HOME", cache).env_remove("MLX_PTX_CACHE_DIR").output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// The folder of the kernels of a cache folder.
fn folder(cache: &Path) -> PathBuf {
    let all = fs::read_dir(cache.join("ml-on-mlx/kernels")).unwrap();
    let all: Vec<PathBuf> = all.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// The images that the folder holds, and when each was written.
fn images(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let images = paths.filter(|path| path.extension().is_some_and(|end| end == "ptx"));
    images
        .map(|path| {
            let written = fs::metadata(&path).unwrap().modified().unwrap();
            (path.clone(), (fs::read(&path).unwrap(), written))
        })
        .collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: cargo xtask gpu-tests"]
fn images_are_kept_and_what_is_damaged_is_made_anew() {
    if env::var_os(COMPUTES).is_some() {
        return compute();
    }
    let cache = env::temp_dir().join(format!("mlxrs-images-{}", std::process::id()));
    let _ = fs::remove_dir_all(&cache);
    computes(&cache);
    let folder = folder(&cache);
    let first = images(&folder);
    let own = |path: &Path| path.to_string_lossy().contains("one_row");
    assert_eq!(first.keys().filter(|path| own(path)).count(), 1, "{:?}", first.keys());
    computes(&cache);
    assert!(images(&folder) == first, "what is there is used as it is");

    for (path, (bytes, _)) in &first {
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    }
    computes(&cache);
    let again = images(&folder);
    assert!(again.keys().eq(first.keys()));
    assert!(again.values().all(|(bytes, _)| bytes.starts_with(b"\x7fELF")));
    for (path, (bytes, _)) in first.iter().filter(|(path, _)| own(path)) {
        // Whole, and others than were compiled.
        let mut other = bytes.clone();
        let middle = other.len() / 2;
        other[middle] ^= 1;
        fs::write(path, &other).unwrap();
        computes(&cache);
        assert!(fs::read(path).unwrap() != other, "what is damaged is not used");
    }

    // Whoever may write there could put kernels into this process.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let left = images(&folder);
    computes(&cache);
    assert!(
        images(&folder).keys().filter(|path| own(path)).eq(left.keys().filter(|path| own(path)))
    );
    fs::remove_dir_all(&cache).unwrap();
}
