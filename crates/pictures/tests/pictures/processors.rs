//! Sizes are those of transformers, and configs are read or refused by name.

use pictures::{Filter, Processor, Rescale, Sizing};
use serde_json::{Value, json};

use crate::{answers, number};

fn rule(value: &Value) -> Sizing {
    match value[0].as_str().expect("a rule") {
        "area" => Sizing::Area {
            factor: number(&value[1]),
            min_pixels: number(&value[2]).into(),
            max_pixels: number(&value[3]).into(),
        },
        "patches" => Sizing::Patches {
            patch: number(&value[1]),
            pooling: number(&value[2]),
            max_tokens: number(&value[3]),
        },
        _ => Sizing::LongestEdge {
            longest_width: number(&value[1]),
            longest_height: number(&value[1]),
            multiple: number(&value[2]),
        },
    }
}

#[test]
fn sizes_are_those_of_transformers() {
    let mut refused = 0;
    for row in answers("sizes.json") {
        let found = rule(&row[0]).of(number(&row[1]), number(&row[2])).ok();
        let expected = (!row[3].is_null()).then(|| (number(&row[3][0]), number(&row[3][1])));
        refused += usize::from(expected.is_none());
        assert_eq!(found, expected, "{row}");
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn a_size_that_cannot_be_is_refused_with_the_sides() {
    let area = Sizing::Area { factor: 32, min_pixels: 4096, max_pixels: 16384 };
    let error = area.of(201, 1).expect_err("too long").to_string();
    assert!(error.contains("201 x 1") && error.contains("200 times"), "{error}");
}

fn qwen() -> Processor {
    Processor {
        sizing: Sizing::Area { factor: 28, min_pixels: 3136, max_pixels: 1_003_520 },
        filter: Some(Filter::Bicubic),
        rescale: Rescale { factor: Some(1.0 / 255.0), normalize: Some(([0.5; 3], [0.5; 3])) },
    }
}

#[test]
fn a_config_lies_over_the_values_of_its_family() {
    let config = json!({
        "size": {"longest_edge": 16384, "shortest_edge": 4096}, "patch_size": 16, "merge_size": 2,
        "image_mean": [0.1, 0.2, 0.3], "do_rescale": true, "do_pan_and_scan": null, "resample": 2,
    });
    let read = qwen().with(&config).expect("a processor");
    assert_eq!(read.sizing, Sizing::Area { factor: 32, min_pixels: 4096, max_pixels: 16384 });
    assert_eq!(read.rescale.normalize, Some(([0.1, 0.2, 0.3], [0.5; 3])));
    assert_eq!(read.filter, Some(Filter::Bilinear));
    assert_eq!(qwen().with(&json!({})).expect("a processor"), qwen());

    let older = json!({"min_pixels": 1, "max_pixels": 2, "size": {"longest_edge": 9}});
    let read = qwen().with(&older).expect("a processor");
    assert_eq!(read.sizing, Sizing::Area { factor: 28, min_pixels: 1, max_pixels: 2 });
    let plain = qwen().with(&json!({"do_normalize": false, "do_resize": false}));
    let plain = plain.expect("a processor");
    assert_eq!((plain.filter, plain.rescale.normalize), (None, None));
    assert_eq!(plain.size(5, 6), Ok((5, 6)));
}

#[test]
fn what_a_config_asks_for_and_is_not_done_is_refused_by_name() {
    for (config, key) in [
        (json!({"do_pan_and_scan": true}), "do_pan_and_scan"),
        (json!({"do_center_crop": true}), "do_center_crop"),
        (json!({"resample": 5}), "resample"),
        (json!({"image_std": [1, 0, 1]}), "image_std"),
        (json!({"image_mean": [1, 2]}), "image_mean"),
        (json!({"image_mean": ["a", 2, 3, 4]}), "image_mean"),
        (json!({"rescale_factor": 0}), "rescale_factor"),
        (json!({"do_resize": "yes"}), "do_resize"),
        (json!({"do_rescale": 1}), "do_rescale"),
        (json!({"patch_size": {"height": 14, "width": 16}, "merge_size": 2}), "patch_size"),
        (json!({"merge_size": 4_000_000, "patch_size": 2}), "merge_size"),
        (json!({"size": {"longest_edge": -1}}), "longest_edge"),
    ] {
        let error = qwen().with(&config).expect_err(key).to_string();
        assert!(error.contains(&format!("`{key}` is ")), "{error}");
    }
}
