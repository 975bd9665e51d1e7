//! Results of tools in the order of their calls: templates without ids know them by that alone.

use serde_json::Value as Json;

use super::call_form::calls_of;

/// Puts the results behind each message that calls into the order of its calls. A result belongs to
/// the call that has its `tool_call_id`, else to one of its `name`, else to the first one that has
/// none. Where there are more results than calls, they stay as they are.
pub(super) fn in_order(messages: &mut [Json]) {
    let mut at = 0;
    while at < messages.len() {
        let from = at + 1;
        let results = messages[from..].iter().take_while(|message| role(message) == Some("tool"));
        let end = from + results.count();
        if end - from > 1
            && let Some(places) = places(calls_of(&messages[at]), &messages[from..end])
        {
            let taken = messages[from..end].iter_mut().map(Json::take);
            let mut results: Vec<(usize, Json)> = places.into_iter().zip(taken).collect();
            results.sort_by_key(|(place, _)| *place);
            for (slot, (_, result)) in messages[from..end].iter_mut().zip(results) {
                *slot = result;
            }
        }
        at = end;
    }
}

fn role(message: &Json) -> Option<&str> {
    message.get("role").and_then(Json::as_str)
}

/// For each result, the position of its call.
fn places(calls: &[Json], results: &[Json]) -> Option<Vec<usize>> {
    if calls.len() < results.len() {
        return None;
    }
    let id = |call: &Json, result: &Json| text(call.get("id")) == text(result.get("tool_call_id"));
    let name = |call: &Json, result: &Json| {
        text(call.pointer("/function/name")) == text(result.get("name"))
    };
    let mut open: Vec<usize> = (0..calls.len()).collect();
    let mut places: Vec<Option<usize>> = vec![None; results.len()];
    let mut take = |key: &str, fits: &dyn Fn(&Json, &Json) -> bool| {
        for (place, result) in places.iter_mut().zip(results).filter(|(place, _)| place.is_none()) {
            let has_key = key.is_empty() || text(result.get(key)).is_some();
            let found = open.iter().position(|call| fits(&calls[*call], result));
            *place = found.filter(|_| has_key).map(|index| open.remove(index));
        }
    };
    take("tool_call_id", &id);
    take("name", &name);
    take("", &|_, _| true);
    places.into_iter().collect()
}

fn text(value: Option<&Json>) -> Option<&str> {
    value.and_then(Json::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::in_order;

    fn called(calls: &[(&str, &str)]) -> Json {
        let call = |(id, name): &(&str, &str)| json!({"id": id, "function": {"name": name}});
        json!({"role": "assistant", "tool_calls": calls.iter().map(call).collect::<Vec<_>>()})
    }

    /// The contents of the results behind these calls, put in order.
    fn ordered(calls: &[(&str, &str)], results: &[Json]) -> Vec<String> {
        let mut messages = vec![json!({"role": "user", "content": "a"}), called(calls)];
        let results = results.iter().enumerate().map(|(at, result)| {
            let mut result = result.clone();
            result["role"] = json!("tool");
            result["content"] = json!(at.to_string());
            result
        });
        messages.extend(results);
        messages.push(json!({"role": "user", "content": "b"}));
        in_order(&mut messages);
        let results = &messages[2..messages.len() - 1];
        results.iter().map(|one| one["content"].as_str().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn results_come_in_the_order_of_their_calls() {
        let calls = [("x", "a"), ("y", "b"), ("z", "b")];
        let by_id = |id: &str| json!({"tool_call_id": id});
        let by_name = |name: &str| json!({"name": name});
        for (results, expected) in [
            (vec![by_id("z"), by_id("x"), by_id("y")], ["1", "2", "0"]),
            (vec![by_name("b"), by_name("b"), by_name("a")], ["2", "0", "1"]),
            (vec![by_name("b"), by_id("y"), by_name("a")], ["2", "1", "0"]),
            (vec![by_id("y"), json!({}), json!({})], ["1", "0", "2"]),
            (vec![by_id("x"), by_id("y"), by_id("z")], ["0", "1", "2"]),
        ] {
            assert_eq!(ordered(&calls, &results), expected, "{results:?}");
        }
        assert_eq!(ordered(&calls, &[by_id("z"), by_id("x")]), ["1", "0"]);
        assert_eq!(ordered(&[("x", "a"), ("x", "a")], &[by_id("x"), by_id("x")]), ["0", "1"]);
        // Those of which a call is missing stay where they are.
        assert_eq!(ordered(&[("x", "a")], &[by_id("y"), by_id("x")]), ["0", "1"]);
    }
}
