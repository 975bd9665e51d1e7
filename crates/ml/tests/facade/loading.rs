//! Loading through a registry: limits, availability, log lines and the look at the memory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use fake_model::{FakeBackend, FakeModel};
use inference_core::{GenerateMetrics, LoadOptions, ModelInfo, Registry};
use ml::{Backend, Event, GenOpts, Log, MlxBackend, MlxOptions};

/// A backend that loads a model of 1 GB, which says `a`.
fn abacus() -> Arc<FakeBackend> {
    Arc::new(FakeBackend::new("abacus", model))
}

fn model() -> FakeModel {
    let info = ModelInfo {
        architecture: "qwen3".into(),
        num_layers: 4,
        weight_bytes: 1_000_000_000,
        device: "abacus".into(),
        ..ModelInfo::default()
    };
    FakeModel { info, kv_bytes: 5_000_000, ..FakeModel::says(&["a"]) }
}

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
    let backend = abacus();
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
    let backend = abacus();
    let registry = registry(&backend);
    let mlx = MlxBackend::from_registry(&registry, "some/model", MlxOptions::default()).unwrap();
    assert!(mlx.available());
    *backend.reason.lock().unwrap() = Some("it has no beads");
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
    let mlx = MlxBackend::over(Arc::new(model()));
    assert!(mlx.available());
    mlx.close();
    assert!(!mlx.available());
}

#[test]
fn a_folder_that_cannot_be_loaded_is_named() {
    let backend = abacus();
    let error = MlxBackend::from_registry(&registry(&backend), "broken", MlxOptions::default());
    assert_eq!(error.unwrap_err().to_string(), "broken: no config.json");
}

#[test]
fn the_folders_name_is_the_models() {
    let backend = abacus();
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
fn the_log_prints_unless_another_one_or_none_is_asked_for() {
    assert!(MlxOptions::default().log.is_some());
    let quiet = MlxOptions { log: None, ..MlxOptions::default() };
    assert!(MlxBackend::from_registry(&registry(&abacus()), "some/model", quiet).is_ok());
}

#[test]
fn a_load_writes_a_line_before_it_and_one_with_layers_and_megabytes() {
    let backend = abacus();
    let (log, events) = log();
    let again = Arc::clone(&log);
    let options = MlxOptions { log: Some(log), ..MlxOptions::default() };
    MlxBackend::from_registry(&registry(&backend), "some/model", options).unwrap();
    let lines: Vec<String> = events.lock().unwrap().iter().map(Event::to_string).collect();
    assert_eq!(lines, ["mlx: loading some/model", "mlx: qwen3 on abacus: 4 layers, 1000 MB"]);
    // What cannot be loaded was tried.
    events.lock().unwrap().clear();
    let options = MlxOptions { log: Some(again), ..MlxOptions::default() };
    assert!(MlxBackend::from_registry(&registry(&backend), "broken", options).is_err());
    assert_eq!(*events.lock().unwrap(), [Event::Loading { path: "broken".into() }]);
}

#[test]
fn memory_past_three_times_the_models_is_told_with_the_numbers_and_what_was_freed_goes_back() {
    for (active_memory_bytes, is_told) in [(3_000_000_000, false), (3_000_000_001, true)] {
        let peak_memory_bytes = 3_500_000_000;
        let metrics = GenerateMetrics {
            active_memory_bytes,
            peak_memory_bytes,
            ..GenerateMetrics::default()
        };
        let (log, events) = log();
        let model = FakeModel { metrics, ..model() };
        let seen = Arc::clone(&model.seen);
        let mlx = MlxBackend::over(Arc::new(model)).with_log(log);
        assert_eq!(mlx.generate("x", &GenOpts::default()).unwrap().text, "a");
        let times = usize::from(is_told);
        assert_eq!(seen.cleared.load(Ordering::SeqCst), times);
        let events = events.lock().unwrap();
        assert_eq!(events.len(), times);
        for event in &*events {
            let line = event.to_string();
            assert!(line.contains("3000 MB in use, 3500 MB at the peak"), "{line}");
            assert!(line.contains("1000 MB") && line.contains("requests hold 5 MB"), "{line}");
        }
    }
}

#[test]
fn a_program_can_ask_for_freed_memory_until_the_model_is_closed() {
    let model = model();
    let seen = Arc::clone(&model.seen);
    let mlx = MlxBackend::over(Arc::new(model));
    assert!(mlx.clear_cache().is_ok());
    assert_eq!(seen.cleared.load(Ordering::SeqCst), 1);
    mlx.close();
    assert_eq!(mlx.clear_cache(), Err(inference_core::Error::Closed));
}
