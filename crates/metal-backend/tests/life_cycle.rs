//! What a process holds after many loads: one test, because the figures are the process's.
#![allow(clippy::unwrap_used, reason = "a test ends where its setting fails")]

#[path = "tiny/mod.rs"]
mod tiny;

use serde_json::json;
use tiny::Checkpoint;

#[test]
fn a_load_and_a_close_leave_no_thread_behind() {
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let checkpoint = Checkpoint::qwen3();
    let broken = Checkpoint::qwen3().config("vocab_size", json!(7));
    let round = || {
        let model = checkpoint.model();
        assert!(model.generate(&"abc".into(), &Default::default()).unwrap().next().is_some());
        drop(model);
        assert!(broken.load(&Default::default()).is_err());
    };
    round();
    let before = threads();
    (0..20).for_each(|_| round());
    std::thread::sleep(std::time::Duration::from_millis(200));
    eprintln!("threads {before} -> {}", threads());
    assert!(threads() <= before + 1);
}
