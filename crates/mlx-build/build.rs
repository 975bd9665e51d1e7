//! Tells the library which machine it is compiled for; only build scripts know the triple.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let triple = std::env::var("TARGET").expect("cargo sets TARGET for build scripts");
    println!("cargo:rustc-env=MLX_BUILD_HOST={triple}");
}
