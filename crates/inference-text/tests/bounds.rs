//! Templates that run, grow or nest without end are errors, and take no memory worth mention.
#![allow(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

use inference_text::{ChatTemplate, LocalTime, TextError};
use serde_json::{Map, Value, json};

fn render(source: &str) -> Result<String, TextError> {
    let mut variables = Map::new();
    variables.insert("messages".into(), json!([{"role": "user", "content": "x".repeat(1 << 20)}]));
    variables.insert("small".into(), json!([1, 2, 3]));
    ChatTemplate::new(source)?.render(&variables, LocalTime { seconds: 0 })
}

const DOUBLE: &str = "{% set ns = namespace(s='ab', l=[1]) %}{% for i in range(60) %}BODY{% endfor %}{{ ns.s|length }}";

#[test]
fn growing_templates_stay_within_their_memory() {
    let before = peak_bytes();
    let doubled = [
        "{% set ns.s = ns.s ~ ns.s %}",
        "{% set ns.s = ns.s + ns.s %}",
        "{% set ns.s = ns.s * 2 %}",
        "{% set ns.s = ns.s * 1000000000000 %}",
        "{% set ns.s = ns.s * 1000000000000000000000 %}",
        "{% set ns.s = ns.s|replace('b', 'bb') %}",
        "{% set ns.s = ns.s.replace('', ns.s) %}",
        "{% set ns.s = ns.s|replace('', ns.s) %}",
        "{% set ns.s = [ns.s, ns.s]|join %}",
        "{% set ns.s = ns.s.join([ns.s, ns.s]) %}",
        "{% set ns.s = ns.s.join(ns.s) %}",
        "{% set ns.s = ns.s|join(ns.s) %}",
        "{% set ns.s = '{}{}'.format(ns.s, ns.s) %}",
        "{% set ns.s = '%s%s' % (ns.s, ns.s) %}",
        "{% set ns.s = '{:>99999999}'.format(1) %}",
        "{% set ns.s = '%99999999d' % 1 %}",
        "{% set ns.s = ns.s.ljust(ns.s|length * 2) %}",
        "{% set ns.s = ns.s.center(100000000000) %}",
        "{% set ns.s = ns.s.zfill(100000000000) %}",
        "{% set ns.s = ns.s|indent(1000000000, true) %}",
        "{% set ns.s = (ns.s ~ '\n')|indent(ns.s, true) %}",
        "{% set ns.s = [ns.s, ns.s]|tojson %}",
        "{% set ns.s = [ns.s, ns.s]|string %}",
        "{% set ns.s = ns.s|upper ~ ns.s|lower %}",
        "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}",
        "{% set x %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}{% set ns.s = x %}",
        "{{ ns.s }}{% set ns.s = ns.s ~ ns.s %}",
        "{% set ns.l = ns.l + ns.l %}",
        "{% set ns.l = ns.l * 2 %}",
        "{% set ns.l = [ns.l, ns.l] %}",
        "{% set ns.l = [ns.l, ns.l] %}{{ ns.l }}",
        "{% set ns.l = [ns.l, ns.l] %}{{ ns.l|tojson }}",
        "{% set ns.l = [ns.l, ns.l] %}{{ ns.l == ns.l }}",
        "{% set ns.l = {'a': ns.l, 'b': ns.l} %}{{ ns.l ~ '' }}",
        "{% set ns.l = dict(a=ns.l, b=ns.l) %}",
        "{% set ns.l = (ns.l, ns.l) %}",
        "{% for i in range(1000) %}{% set ns.l = ns.l|groupby(0) %}{% endfor %}",
        "{% set ns.l = ns.l|list + ns.l|list %}",
        "{% set ns.l = ns.l + [messages[0].content ~ loop.index] %}{% for i in range(100) %}{% set ns.l = ns.l + [messages[0].content ~ i] %}{% endfor %}",
        "{% for i in range(100) %}{% set ns.l = ns.l + [messages[0].content|upper] %}{% endfor %}",
        "{% for i in range(100) %}{% set ns.l = ns.l + [messages[0].content.upper()] %}{% endfor %}",
        "{% for i in range(100) %}{% set ns.l = ns.l + [messages[0].content|list] %}{% endfor %}",
        "{% for i in range(100) %}{% set ns.l = ns.l + [messages[0].content[1:]] %}{% endfor %}",
        "{% for i in range(100) %}{% set ns.l = ns.l + [messages[0].content.split('x')] %}{% endfor %}",
    ];
    for body in doubled {
        let source = DOUBLE.replace("BODY", body);
        let err = render(&source).expect_err(body);
        assert!(
            matches!(err, TextError::TemplateBounds(_) | TextError::Template { .. }),
            "{body}: {err}"
        );
    }
    let raw = format!("{{% for i in range(100000) %}}{}{{% endfor %}}", "raw text ".repeat(1000));
    assert!(matches!(render(&raw), Err(TextError::TemplateBounds(_))));
    let macros = "{% macro m(s, n) %}{% if n > 0 %}{{ m(s ~ s, n - 1) }}{% endif %}{% endmacro %}{{ m('ab', 60) }}";
    assert!(matches!(render(macros), Err(TextError::TemplateBounds(_))));
    let nested = "{% for x in [messages[0].content ~ messages[0].content] %}".repeat(12)
        + &"{% for x in [x ~ x] %}".repeat(12)
        + &"{% endfor %}".repeat(24);
    assert!(render(&nested).is_err());
    let used = peak_bytes() - before;
    assert!(used < 256 << 20, "{} MiB", used >> 20);
}

/// The most memory that this process has held.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(0, |kib| kib << 10)
}

#[test]
fn endless_templates_run_out_of_steps() {
    let nested = "{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}";
    let err = render(nested).unwrap_err();
    assert_eq!(err.to_string(), "chat template exceeds its bounds: more than 4000000 steps");
}

#[test]
fn deep_recursion_is_an_error() {
    let errors = [
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}".to_owned(),
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}".to_owned(),
        "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}".to_owned(),
        "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}".to_owned(),
        format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("{{{{ {}1{} }}}}", "[".repeat(10_000), "]".repeat(10_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        "{% if true %}".repeat(10_000) + &"{% endif %}".repeat(10_000),
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}".to_owned(),
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}".to_owned(),
        "{% set ns = namespace() %}{% for i in range(5000) %}{% set ns.l = namespace(l=ns.l) %}{% endfor %}".to_owned(),
        "{% block a %}{{ self.a() }}{% endblock %}".to_owned(),
        "{% include 'chat_template' %}".to_owned(),
        "{% extends 'chat_template' %}".to_owned(),
        "{% import 'chat_template' as x %}".to_owned(),
    ];
    for source in errors {
        let label: String = source.chars().take(80).collect();
        assert!(render(&source).is_err(), "{label}");
    }
}

#[test]
fn long_chains_of_operators_do_not_end_the_process() {
    // Short ones may or may not be refused, as long as the process lives.
    for times in [100, 300, 390, 600, 900, 1900, 50_000] {
        let refused = |source: &str| times < 50_000 || render(source).is_err();
        for part in
            ["1 + ", "'a' ~ ", "1 == ", "x or ", "x and ", "1 if true else ", "not ", "-", "1, "]
        {
            let source = format!("{{{{ {}1 }}}}", part.repeat(times));
            let _ = render(&source);
            assert!(refused(&source) || part == "1, ", "{part}");
        }
        for part in ["|string", ".a", "[0]", "()", " is none"] {
            assert!(refused(&format!("{{{{ x{} }}}}", part.repeat(times))), "{part}");
            let _ = render(&format!("{{{{ x{} }}}}", part.repeat(times)));
        }
        let source = "{% if x %}".to_owned() + &"{% elif y %}".repeat(times) + "{% endif %}";
        let _ = render(&source);
        assert!(refused(&source), "elif");
    }
}

#[test]
fn a_long_conversation_is_within_the_bounds() {
    let turn = |_| json!({"role": "user", "content": "word ".repeat(400)});
    let mut variables = Map::new();
    let messages: Vec<Value> = (0..600).map(turn).collect();
    variables.insert("messages".into(), messages.into());
    // With the quadratic lookups that published templates have.
    let source = "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m] %}\
                  {% if m == (messages|selectattr('role', 'equalto', 'x')|list + [1])[-1] %}last{% endif %}\
                  {{ '<' + m.role + '>' + m.content.split('</think>')[-1]|trim }}{% endfor %}{{ ns.l|length }}";
    let template = ChatTemplate::new(source).unwrap();
    let text = template.render(&variables, LocalTime { seconds: 0 }).unwrap();
    assert!(text.ends_with("600") && text.len() > 1_200_000);
}

#[test]
fn a_namespace_that_holds_itself_is_an_error() {
    for shown in ["ns", "ns.me", "ns.me|tojson"] {
        for held in ["ns", "[ns]"] {
            let source =
                format!("{{% set ns = namespace() %}}{{% set ns.me = {held} %}}{{{{ {shown} }}}}");
            assert!(render(&source).is_err(), "{shown} of {held}");
        }
    }
}

#[test]
fn deeply_nested_input_is_an_error() {
    let mut value = json!(1);
    for _ in 0..10_000 {
        value = Value::Array(vec![value]);
    }
    let mut variables = Map::new();
    variables.insert("messages".into(), value);
    let err =
        ChatTemplate::new("{{ messages }}").unwrap().render(&variables, LocalTime { seconds: 0 });
    assert!(matches!(err, Err(TextError::TemplateBounds(_))));
    // serde_json drops a value by recursion, which is its caller's affair.
    std::mem::forget(variables);
}

#[test]
fn errors_carry_the_template_line_and_its_own_message() {
    let err = render("line\n\n{{ 'a' + nope }}").unwrap_err();
    assert!(matches!(err, TextError::Template { line: 3, .. }), "{err}");
    let err = render("{{ raise_exception('Roles must alternate!') }}").unwrap_err();
    assert_eq!(err.to_string(), "the chat template refuses the messages: Roles must alternate!");
    let inner = "{% macro m() %}{{ raise_exception('inside') }}{% endmacro %}{{ m() }}";
    assert!(matches!(render(inner), Err(TextError::Raised(message)) if message == "inside"));
    assert!(matches!(render("\n{% if %}"), Err(TextError::Template { line: 2, .. })));
    let long = " ".repeat((1 << 20) + 1);
    assert_eq!(
        render(&long).unwrap_err().to_string(),
        "chat template, line 0: has 1048577 bytes, at most 1048576 are read"
    );
}

#[test]
fn a_template_sees_nothing_but_its_variables() {
    for source in ["{{ messages.__class__ }}", "{{ debug() }}", "{{ ''.__class__.__mro__ }}"] {
        let seen = render(source).unwrap_or_default();
        assert!(!seen.contains("class") && seen.len() < 10, "{source}: {seen}");
    }
}
