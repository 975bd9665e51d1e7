//! Loading through a registry: limits, availability, log lines and the look at the memory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use inference_core::{LoadOptions, Registry};
use ml::{Backend, Event, GenOpts, Log, MlxBackend, MlxOptions};

use crate::fake::{FakeBackend, Script};

fn registry(backend: &Arc<FakeBackend>) -> Registry {
    let registry = Registry::new();
    let backend = Arc::clone(backend);
    registry.register(backend).unwrap();
    registry
}

/// A log that keeps its events.
fn log() -> (Log, Arc<Mutex<Vec<Event>>>) {
    let events = Arc::<Mutex<Vec<Event>>>::default();
    let kept = Arc::clone(&events);
    (Arc::new(move |event: &Event| kept.lock().unwrap().push(event.clone())), events)
}

#[test]
fn the_allocators_limits_are_options_with_defaults() {
    let backend = FakeBackend::new(Script::says(&["a"]));
    let registry = registry(&backend);
    MlxBackend::from_registry(&registry, "some/model", MlxOptions::default()).unwrap();
    let load =
        LoadOptions { memory_limit: Some(5), context_length: Some(6), ..LoadOptions::default() };
    MlxBackend::from_registry(&registry, "some/model", MlxOptions { load, log: None }).unwrap();
    let loaded = backend.loaded.lock().unwrap();
    assert_eq!(loaded[0].cache_limit, Some(16 * 1024 * 1024 * 1024));
    assert_eq!(loaded[0].memory_limit, Some(24 * 1024 * 1024 * 1024));
    assert_eq!((loaded[1].cache_limit, loaded[1].memory_limit), (None, Some(5)));
    assert_eq!(loaded[1].context_length, Some(6));
}

#[test]
fn without_a_device_it_is_not_available() {
    let backend = FakeBackend::new(Script::says(&["a"]));
    let registry = registry(&backend);
    let mlx = MlxBackend::from_registry(&registry, "some/model", MlxOptions::default()).unwrap();
    assert!(mlx.available());
    backend.has_device.store(false, Ordering::SeqCst);
    assert!(!mlx.available());
    let error =
        MlxBackend::from_registry(&registry, "some/model", MlxOptions::default()).unwrap_err();
    assert!(error.to_string().contains("it has no beads"), "{error}");
    let error =
        MlxBackend::from_registry(&Registry::new(), "m", MlxOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no backends registered"), "{error}");
    // This test's process registers nothing.
    assert!(!MlxBackend::has_device());
}

#[test]
fn a_closed_model_is_not_available() {
    let (model, _) = Script::says(&["a"]).model();
    let mlx = MlxBackend::over(model);
    assert!(mlx.available());
    mlx.close();
    assert!(!mlx.available());
}

#[test]
fn a_folder_that_cannot_be_loaded_is_named() {
    let backend = FakeBackend::new(Script::says(&["a"]));
    let error = MlxBackend::from_registry(&registry(&backend), "broken", MlxOptions::default());
    assert_eq!(error.unwrap_err().to_string(), "broken: no config.json");
}

#[test]
fn the_folders_name_is_the_models() {
    let backend = FakeBackend::new(Script::says(&["a"]));
    let options = MlxOptions::default();
    let mlx = MlxBackend::from_registry(&registry(&backend), "some/model", options).unwrap();
    for name in ["some/model", "model", "qwen3"] {
        let opts = GenOpts { model: Some(name.into()), ..GenOpts::default() };
        assert!(mlx.generate("x", &opts).is_ok(), "{name}");
    }
    let opts = GenOpts { model: Some("some".into()), ..GenOpts::default() };
    assert!(mlx.generate("x", &opts).unwrap_err().to_string().contains("some/model"));
}

#[test]
fn a_load_writes_a_line_with_layers_and_megabytes() {
    let backend = FakeBackend::new(Script::says(&["a"]));
    let (log, events) = log();
    let options = MlxOptions { log: Some(log), ..MlxOptions::default() };
    MlxBackend::from_registry(&registry(&backend), "some/model", options).unwrap();
    let lines: Vec<String> = events.lock().unwrap().iter().map(Event::to_string).collect();
    assert_eq!(lines, ["mlx: qwen3 on abacus: 4 layers, 1000 MB"]);
}

#[test]
fn memory_past_three_times_the_models_is_told_with_the_numbers() {
    for (active_memory_bytes, is_told) in [(3_000_000_000, false), (3_000_000_001, true)] {
        let (model, _) = Script { active_memory_bytes, ..Script::says(&["a"]) }.model();
        let (log, events) = log();
        let reply = MlxBackend::over(model).with_log(log).generate("x", &GenOpts::default());
        assert_eq!(reply.unwrap().text, "a");
        let events = events.lock().unwrap();
        assert_eq!(events.len(), usize::from(is_told));
        for event in &*events {
            let line = event.to_string();
            assert!(line.contains("3000 MB in use") && line.contains("1000 MB"), "{line}");
            assert!(line.contains("requests hold 5 MB"), "{line}");
        }
    }
}
