//! Grammars that would cost too much, each of another kind.

/// Names and grammars.
pub fn all() -> Vec<(&'static str, String)> {
    let rules = |count: usize, rule: fn(usize) -> String| (0..count).map(rule).collect::<String>();
    let hard = "(a|b)*a(a|b){24}";
    vec![
        ("ambiguous rules", "start: start start | start start start | \"a\" | ".into()),
        ("rules of optional rules", "start: a a a a a a a a\na: b? b? b? b? b? b?\nb: c? c? c? c?\nc: \"x\"?\n".into()),
        ("a chain of rules", rules(4000, |i| format!("r{i}: r{}\n", i + 1)) + "r4000: \"x\"\nstart: r0"),
        ("a chain of optional rules", rules(3000, |i| format!("r{i}: r{}?\n", i + 1)) + "r3000: \"x\"\nstart: r0"),
        ("a chain of terminals", rules(2500, |i| format!("R{i}: R{} \"a\"\n", i + 1)) + "R2500: \"x\"\nstart: R0"),
        ("doubled rules", rules(60, |i| format!("r{i}: r{} r{}\n", i + 1, i + 1)) + "r60: \"x\"\nstart: r0"),
        ("doubled terminals", rules(40, |i| format!("R{i}: R{} R{}\n", i + 1, i + 1)) + "R40: \"x\"\nstart: R0"),
        ("doubled classes", rules(40, |i| format!("R{i}: R{} R{}\n", i + 1, i + 1)) + "R40: /[ab]/\nstart: R0"),
        ("doubled choices", rules(40, |i| format!("R{i}: R{} | R{} \"{i}\"\n", i + 1, i + 1)) + "R40: \"x\"\nstart: R0"),
        ("repeated terminals", rules(8, |i| format!("R{i}: (R{} \"{i}\"?)~0..100\n", i + 1)) + "R8: \"x\"\nstart: R0"),
        ("repeated words", "start: A\nA: B~0..250\nB: C~0..250 /\\s/?\nC: /\\w/\n".into()),
        ("repeated rules", rules(8, |i| format!("r{i}: (r{} \"{i}\"?)~0..1000\n", i + 1)) + "r8: \"x\"\nstart: r0"),
        ("a million repetitions", "start: \"a\"~1000000..2000000000".into()),
        ("many terminals", format!("start: {}\n", (0..4000).map(|i| format!("\"{i:06x}\"")).collect::<Vec<_>>().join(" | "))),
        ("many expressions", format!("start: ({})*\n", (0..3000).map(|i| format!("/.*{i:04}/")).collect::<Vec<_>>().join(" | "))),
        ("many words", format!("start: ({})*\n", (0..2000).map(|i| format!("/\\w*{i:04}/")).collect::<Vec<_>>().join(" | "))),
        ("an intersection without a text", format!("start: A\nA: /{hard}/ & /(a|b)*b(a|b){{24}}/ & /(a|b)*c/")),
        ("an intersection behind a letter", format!("start: A\nA: /x|y{hard}/ & ~/.*a(a|b){{23}}/")),
        ("the complement of an expression", format!("start: A\nA: ~/{hard}/")),
        ("complements of complements", "start: A\nA: ~(~(~/(a|b)*a(a|b){18}/ /c.*/) /d(a|b)*a(a|b){18}/)".into()),
        ("many complements", format!("start: A\nA: {}", (0..200).map(|i| format!("~/.*a.{{{}}}b.*/", i + 1)).collect::<Vec<_>>().join(" & "))),
        ("many intersections", format!("start: A\nA: {}", (2..60).map(|i| format!("/(a{{{i}}})*/")).collect::<Vec<_>>().join(" & "))),
        ("periods that meet late", format!("start: A\nA: /a+/ & {}", [2, 3, 5, 7, 11, 13, 17, 19, 23].map(|i| format!("/(a{{{i}}})*/")).join(" & "))),
        ("a lazy end", "start: a\na[lazy]: /(\\w{0,250}\\s?){0,250}/ \"end\"\n".into()),
        ("a stop expression", "start: a\na[stop=/(\\w{0,200}\\s?){0,200}x/]: /.*/\n".into()),
        ("a suffix expression", "start: a\na[suffix=/(a|b)*a(a|b){200}/]: /(.|\\n)*/\n".into()),
        ("parts of a long text", format!("start: A\nA: %regex {{\"substring_chars\": \"{}\"}}", (0..12_000).map(|i| char::from(b'a' + (i * i % 26) as u8)).collect::<String>())),
        ("words of a long text", format!("start: A\nA: %regex {{\"substring_words\": \"{}\"}}", (0..8000).map(|i| format!("w{} ", i * i % 97)).collect::<String>())),
        ("skipped text", "start: (\"a\" | \"b\")*\n%ignore /(\\w{0,200}\\s?){0,200}/\n".into()),
        ("hostile schema in a grammar", "start: %json {\"type\": \"string\", \"pattern\": \"^(\\\\w{0,250}\\\\s?){0,250}$\"}".into()),
        ("many schemas in a grammar", format!("start: {}", (0..800).map(|i| format!("%json {{\"properties\": {{\"p{i}\": {{}}}}}}")).collect::<Vec<_>>().join(" | "))),
        ("nested grammars", format!("start: {}\"x\"{}", "%lark {\nstart: ".repeat(80), "\n}".repeat(80))),
        ("deep brackets", format!("start: {}\"x\"{}", "(".repeat(95), ")?".repeat(95))),
        ("token ranges", format!("start: {}", (0..3000).map(|i| format!("<[{}-{}]>", i % 500, 500 + i % 500)).collect::<Vec<_>>().join(" "))),
        ("rules with parameters", "start: r::0\nr::_: \"a\" r::set_bit(0) %if bit_clear(0)\n | \"b\" r::set_bit(1) %if bit_clear(1)\n | \"\" %if bit_set(0)\n".into()),
        ("letters without case", "start: A\nA: \"abcdefghijklmnopqrstuvwxyz\"i~0..2000\n".into()),
    ]
}
