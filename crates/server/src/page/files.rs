//! The files of the page, which lie in the program.

/// Each file below `/page/`: its path there and its bytes.
pub const FILES: &[(&str, &[u8])] = &[
    ("answers.js", include_bytes!("../../page/answers.js")),
    ("assistant-message.js", include_bytes!("../../page/assistant-message.js")),
    ("attachments.js", include_bytes!("../../page/attachments.js")),
    ("code.js", include_bytes!("../../page/code.js")),
    ("composer.js", include_bytes!("../../page/composer.js")),
    ("conversations.js", include_bytes!("../../page/conversations.js")),
    ("database.js", include_bytes!("../../page/database.js")),
    ("dialogs.js", include_bytes!("../../page/dialogs.js")),
    ("dom.js", include_bytes!("../../page/dom.js")),
    ("drafts.js", include_bytes!("../../page/drafts.js")),
    ("formula.js", include_bytes!("../../page/formula.js")),
    ("gallery.js", include_bytes!("../../page/gallery.js")),
    ("import.js", include_bytes!("../../page/import.js")),
    ("list.js", include_bytes!("../../page/list.js")),
    ("main.js", include_bytes!("../../page/main.js")),
    ("markdown.js", include_bytes!("../../page/markdown.js")),
    ("options.js", include_bytes!("../../page/options.js")),
    ("paint.js", include_bytes!("../../page/paint.js")),
    ("request.js", include_bytes!("../../page/request.js")),
    ("server.js", include_bytes!("../../page/server.js")),
    ("settings.js", include_bytes!("../../page/settings.js")),
    ("studio.js", include_bytes!("../../page/studio.js")),
    ("style.css", include_bytes!("../../page/style.css")),
    ("tabs.js", include_bytes!("../../page/tabs.js")),
    ("thread.js", include_bytes!("../../page/thread.js")),
    ("transfer.js", include_bytes!("../../page/transfer.js")),
    ("tree.js", include_bytes!("../../page/tree.js")),
    ("user-message.js", include_bytes!("../../page/user-message.js")),
    ("versions.js", include_bytes!("../../page/versions.js")),
    ("vendor/README.md", include_bytes!("../../page/vendor/README.md")),
    ("vendor/highlight/LICENSE", include_bytes!("../../page/vendor/highlight/LICENSE")),
    ("vendor/highlight/highlight.js", include_bytes!("../../page/vendor/highlight/highlight.js")),
    ("vendor/katex/LICENSE", include_bytes!("../../page/vendor/katex/LICENSE")),
    (
        "vendor/katex/fonts/KaTeX_AMS-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_AMS-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Caligraphic-Bold.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Caligraphic-Bold.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Caligraphic-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Caligraphic-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Fraktur-Bold.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Fraktur-Bold.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Fraktur-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Fraktur-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Main-Bold.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Main-Bold.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Main-BoldItalic.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Main-BoldItalic.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Main-Italic.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Main-Italic.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Main-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Main-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Math-BoldItalic.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Math-BoldItalic.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Math-Italic.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Math-Italic.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_SansSerif-Bold.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_SansSerif-Bold.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_SansSerif-Italic.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_SansSerif-Italic.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_SansSerif-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_SansSerif-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Script-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Script-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Size1-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Size1-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Size2-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Size2-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Size3-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Size3-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Size4-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Size4-Regular.woff2"),
    ),
    (
        "vendor/katex/fonts/KaTeX_Typewriter-Regular.woff2",
        include_bytes!("../../page/vendor/katex/fonts/KaTeX_Typewriter-Regular.woff2"),
    ),
    ("vendor/katex/katex.css", include_bytes!("../../page/vendor/katex/katex.css")),
    ("vendor/katex/katex.js", include_bytes!("../../page/vendor/katex/katex.js")),
    ("vendor/markdown-it/LICENSE", include_bytes!("../../page/vendor/markdown-it/LICENSE")),
    (
        "vendor/markdown-it/markdown-it.js",
        include_bytes!("../../page/vendor/markdown-it/markdown-it.js"),
    ),
];
