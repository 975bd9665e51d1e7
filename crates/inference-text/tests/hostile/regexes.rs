//! Regular expressions that would cost too much, each of another kind.

/// Names and expressions.
pub fn all() -> Vec<(&'static str, String)> {
    let many = |count: usize, part: &str| part.repeat(count);
    let numbered = |count: usize, part: fn(usize) -> String| -> String {
        (0..count).map(part).collect::<Vec<_>>().join("|")
    };
    let hex = |n: usize| format!("{n:05x}");
    vec![
        ("words of bounded words", r"(\w{0,250}\s?){0,250}".into()),
        ("words of bounded words without end", r"(\w{0,2000}\s?)*".into()),
        ("bounded words in three levels", r"((\w{0,50}\s?){0,50}\.?){0,50}".into()),
        ("bounded letters in three levels", "(((a{0,100}b?){0,100}c?){0,100})".into()),
        ("optional letters in five levels", "(((((a?){0,40}b?){0,40}c?){0,40}d?){0,40}e?)".into()),
        ("counts of counts", "((((((a{100}){100}){100}){100}){100}){100})".into()),
        ("a count of four billion", "a{4000000000}".into()),
        ("a range to four billion", "(ab?){0,4000000000}".into()),
        ("any characters, many times over", "(.{0,500}){0,500}".into()),
        ("any characters behind each other", many(60, ".{0,1000}")),
        ("words behind each other", many(300, r"\w{0,200}")),
        ("optional words", many(4000, r"\w?")),
        ("optional characters", many(20_000, ".?")),
        ("optional letters and then letters", many(5000, "a?") + &many(5000, "a")),
        ("optional letters alone", many(30_000, "a?")),
        ("optional classes that overlap", many(7000, "[a-y]?[b-z]?")),
        ("stars behind each other", many(20_000, "a*")),
        ("stars of classes behind each other", many(10_000, "[ab]*c?")),
        ("stars of stars", format!("{}a{}", many(90, "("), many(90, "*)"))),
        ("question marks behind each other", format!("a{}", many(60_000, "?"))),
        ("the nth letter from the end", "(a|b)*a(a|b){1000}".into()),
        ("the nth character from the end", ".*a.{2000}".into()),
        ("the nth word character from the end", r"\w*\d\w{3000}".into()),
        ("several letters from the end", "(.*a.{300}|.*b.{301}|.*c.{302})".into()),
        ("ambiguous sums", "(a|aa)+b".into()),
        (
            "ambiguous sums of many parts",
            format!("({})+b", (1..200).map(|n| many(n, "a")).collect::<Vec<_>>().join("|")),
        ),
        ("ambiguous sums with counts", "(a{1,50}|a{2,60}|a{3,70}){1,100}b".into()),
        ("words of Unicode, again and again", many(30_000, r"\w")),
        ("properties of Unicode, again and again", many(10_000, r"\p{L}")),
        ("classes without a property", many(9000, r"\P{Lu}")),
        ("classes of classes", many(3000, r"[\w&&[^\d]--\p{Greek}]")),
        ("classes without case", format!("(?i){}", many(20_000, r"\w"))),
        ("classes in a hundred levels", format!("{}a{}", many(90, "["), many(90, "]"))),
        ("long alternatives", numbered(7000, |n| format!("{n:08}"))),
        ("alternatives with one beginning", numbered(3000, |n| format!("aaaaaaaaaaaaa{n:05}"))),
        ("alternatives with one end", numbered(3000, |n| format!("{n:05}zzzzzzzzzzzzz"))),
        ("alternatives of stars", numbered(4000, |n| format!("x*{n:05}"))),
        ("alternatives of classes", numbered(4000, |n| format!(r".*{n:04}"))),
        (
            "alternatives again and again",
            format!("({}){{0,100}}", numbered(2000, |n| format!("{n:05}"))),
        ),
        (
            "alternatives in all of a text",
            format!("({})*", numbered(3000, |n| format!(".?{n:05}"))),
        ),
        (
            "alternatives of ranges",
            numbered(4000, |n| format!("[{}-z]+", char::from(b'a' + (n % 20) as u8))),
        ),
        ("a literal of 60,000 letters", many(20_000, "abc")),
        ("a repeated literal", format!("({}){{1000}}", many(1000, "abcdefghij"))),
        (
            "a repeated choice of literals",
            format!("({}){{0,1000}}", (0..3000).map(hex).collect::<Vec<_>>().join("|")),
        ),
        (
            "dots of each length",
            (1..300).map(|n| format!(".{{{n}}}")).collect::<Vec<_>>().join("|"),
        ),
        (
            "dots of each length, again",
            format!("({})*", (1..300).map(|n| format!(".{{{n}}}x")).collect::<Vec<_>>().join("|")),
        ),
        (
            "suffixes of words",
            format!(
                "({})",
                (1..200).map(|n| format!(r"\w{{0,{n}}}{n}")).collect::<Vec<_>>().join("|")
            ),
        ),
        ("words with accents", r"(?:[^\x00-\x7F]{0,300}\p{M}?){0,300}".into()),
        ("nested groups with bounds", format!("{}a{}", many(60, "("), many(60, "){0,3}"))),
        (
            "nested groups with bounds and ends",
            format!("{}a{}", many(60, "("), many(60, "b?){0,3}")),
        ),
        ("doubled groups", format!("{}a{}", many(60, "("), many(60, "){2}"))),
        (
            "e-mail addresses of e-mail addresses",
            r"(([a-z0-9]+[.-]?){0,200}@?([a-z0-9]+[.-]?){0,200}){0,20}".into(),
        ),
        ("lists of numbers", r"((\d{0,100},?){0,100};?){0,100}".into()),
    ]
}
