//! Values, messages, prompts, metrics and attention snapshots.

use std::time::Duration;

use inference_core::{
    ChatOptions, GenerateMetrics, LayerAttention, Message, ModelInfo, Prompt, Role, TextModel,
    Value,
};

#[test]
fn an_object_keeps_the_order_of_its_keys_and_finds_by_key() {
    let object = Value::Object(vec![("b".into(), Value::Int(1)), ("a".into(), Value::from(true))]);
    assert_eq!(object.get("a"), Some(&Value::Bool(true)));
    assert_eq!(object.get("c"), None);
    let Value::Object(fields) = &object else { panic!("an object") };
    assert_eq!(fields[0].0, "b");
}

#[test]
fn the_last_of_two_equal_keys_counts_as_json_readers_have_it() {
    let object = Value::Object(vec![("a".into(), Value::Int(1)), ("a".into(), Value::Int(2))]);
    assert_eq!(object.get("a"), Some(&Value::Int(2)));
}

#[test]
fn only_a_string_has_text_and_only_an_object_has_keys() {
    assert_eq!(Value::from("x").as_str(), Some("x"));
    for value in [Value::default(), Value::from(1), Value::from(0.5), Value::Array(vec![])] {
        assert_eq!(value.as_str(), None);
        assert_eq!(value.get("x"), None);
    }
}

#[test]
fn plain_types_become_values() {
    assert_eq!(Value::from(String::from("x")), Value::String("x".into()));
    assert_eq!(Value::from(7), Value::Int(7));
    assert_eq!(Value::from(0.5), Value::Float(0.5));
    assert_eq!(Value::default(), Value::Null);
}

#[test]
fn a_roles_name_comes_back_as_it_went_in() {
    for name in ["system", "user", "assistant", "tool", "developer"] {
        assert_eq!(Role::from(name).to_string(), name);
    }
    assert_eq!(Role::from("user"), Role::User);
    assert_eq!(Role::from("developer"), Role::Other("developer".into()));
}

#[test]
fn messages_are_made_by_role_with_plain_text() {
    let messages =
        [Message::system("s"), Message::user("u"), Message::assistant("a"), Message::tool("t")];
    for (message, role) in messages.iter().zip(["system", "user", "assistant", "tool"]) {
        assert_eq!(message.role.as_str(), role);
        assert_eq!(message.content.as_str(), role.get(..1));
        assert!(message.fields.is_empty());
    }
    assert_eq!(Message::new(Role::Assistant, Value::Null).content, Value::Null);
}

#[test]
fn text_and_ids_become_prompts() {
    assert_eq!(Prompt::from("a"), Prompt::Text("a".into()));
    assert_eq!(Prompt::from(String::from("a")), Prompt::Text("a".into()));
    assert_eq!(Prompt::from(vec![1]), Prompt::Ids(vec![1]));
}

#[test]
fn a_chat_ends_where_the_answer_begins_unless_told_otherwise() {
    assert!(ChatOptions::default().add_generation_prompt);
}

#[test]
fn an_unquantised_model_has_zero_bits() {
    let info = ModelInfo::default();
    assert_eq!((info.quant_bits, info.quant_group), (0, 0));
}

#[test]
fn rates_count_what_was_computed_in_the_time_it_took() {
    let metrics = GenerateMetrics {
        prompt_tokens: 120,
        cached_prompt_tokens: 20,
        generated_tokens: 11,
        prefill_duration: Duration::from_millis(500),
        decode_duration: Duration::from_secs(2),
        ..Default::default()
    };
    assert_eq!(metrics.prefill_tokens_per_second(), 200.0);
    assert_eq!(metrics.decode_tokens_per_second(), 5.0);
}

#[test]
fn rates_are_zero_rather_than_infinite_where_nothing_was_measured() {
    let none = GenerateMetrics { prompt_tokens: 5, generated_tokens: 5, ..Default::default() };
    assert_eq!((none.prefill_tokens_per_second(), none.decode_tokens_per_second()), (0.0, 0.0));
    let one_token = GenerateMetrics {
        generated_tokens: 1,
        decode_duration: Duration::from_secs(1),
        ..Default::default()
    };
    assert_eq!(one_token.decode_tokens_per_second(), 0.0, "the first token is prefill's");
    let odd = GenerateMetrics { cached_prompt_tokens: 9, ..one_token };
    assert_eq!(odd.prefill_tokens_per_second(), 0.0);
}

#[test]
fn a_layers_keys_and_queries_are_found_by_head() {
    let layer = LayerAttention {
        layer: 0,
        weights: None,
        n_kv_heads: 2,
        n_heads: 4,
        head_dim: 1,
        positions: vec![1, 2],
        keys: vec![0.0, 1.0, 10.0, 11.0],
        queries: (0u8..12).map(f32::from).collect(),
    };
    assert_eq!(layer.head_keys(1), Some([10.0, 11.0].as_slice()));
    assert_eq!(layer.head_keys(2), None);
    assert_eq!(layer.head_queries(3), Some([9.0, 10.0, 11.0].as_slice()));
    assert_eq!(layer.head_queries(4), None);
    let empty =
        LayerAttention { n_kv_heads: 0, n_heads: 0, keys: vec![], queries: vec![], ..layer };
    assert_eq!(empty.head_keys(0), None);
}

#[test]
fn a_model_handle_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn TextModel>();
    shared::<dyn inference_core::Backend>();
}
