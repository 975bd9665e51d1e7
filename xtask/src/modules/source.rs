//! The names that the source of one module declares, imports and mentions.
//!
//! Code that only tests compile is left out. Documentation is no use of what it links to.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The source of a module, in a file of its own or between braces.
#[derive(Default)]
pub struct Source {
    pub declared: Vec<Declared>,
    pub imports: Vec<Import>,
    pub mentions: Vec<Mention>,
    pub modules: Vec<Inner>,
    /// Files that `include!` puts in.
    pub included: Vec<String>,
}

/// An item that other modules can name.
pub struct Declared {
    pub name: String,
    pub line: usize,
    pub is_public: bool,
    pub kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A struct, enum, union, trait or alias.
    Type,
    /// A function, constant or static.
    Value,
    Macro,
}

/// One name that a `use` brings into the module.
pub struct Import {
    /// `None` for `*`.
    pub name: Option<String>,
    pub path: Vec<String>,
    pub line: usize,
    pub reach: Reach,
}

/// Who sees an import.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Private,
    /// `pub(crate)` and narrower.
    Crate,
    Public,
}

/// A path in the code of the module.
pub struct Mention {
    pub path: Vec<String>,
    pub line: usize,
    /// `!` follows.
    pub is_macro: bool,
}

/// A module that this one declares.
pub struct Inner {
    pub name: String,
    pub line: usize,
    pub is_public: bool,
    pub of_tests: bool,
    /// The file that `#[path]` gives.
    pub path: Option<String>,
    /// `None` where it is in a file of its own.
    pub content: Option<Source>,
}

impl Source {
    /// Reads a whole file.
    ///
    /// # Errors
    /// The parser's, for a text that is no Rust.
    pub fn parse(text: &str) -> syn::Result<Source> {
        Ok(Source::of_items(&syn::parse_file(text)?.items))
    }

    fn of_items(items: &[syn::Item]) -> Source {
        let mut source = Source::default();
        for item in items {
            source.visit_item(item);
        }
        source
    }

    /// Takes what another file says, as if it stood here.
    pub fn include(&mut self, other: Source) {
        self.declared.extend(other.declared);
        self.imports.extend(other.imports);
        self.mentions.extend(other.mentions);
        self.modules.extend(other.modules);
    }

    fn declare(&mut self, ident: &syn::Ident, vis: &syn::Visibility, kind: Kind) {
        self.declared.push(Declared {
            name: name(ident),
            line: line(ident),
            is_public: reach(vis) == Reach::Public,
            kind,
        });
    }

    fn declare_module(&mut self, item: &syn::ItemMod) {
        let content = item.content.as_ref().map(|(_, items)| Source::of_items(items));
        self.modules.push(Inner {
            name: name(&item.ident),
            line: line(&item.ident),
            is_public: reach(&item.vis) == Reach::Public,
            of_tests: is_of_tests(&item.attrs),
            path: item.attrs.iter().find_map(path_attribute),
            content,
        });
    }

    /// Takes the names of one `use`; `before` is the path down to `tree`.
    fn import(&mut self, tree: &syn::UseTree, before: &[String], reach: Reach) {
        let mut path = before.to_vec();
        let (name, line) = match tree {
            syn::UseTree::Path(tree) => {
                path.push(name(&tree.ident));
                return self.import(&tree.tree, &path, reach);
            }
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, before, reach));
            }
            syn::UseTree::Glob(glob) => (None, glob.star_token.spans[0].start().line),
            syn::UseTree::Name(tree) => {
                path.push(name(&tree.ident));
                (path.last().cloned(), line(&tree.ident))
            }
            syn::UseTree::Rename(tree) => {
                path.push(name(&tree.ident));
                (Some(name(&tree.rename)), line(&tree.ident))
            }
        };
        // `use a::b::{self}` is `use a::b`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = name.map(|name| match name == "self" {
            true => path.last().cloned().unwrap_or_default(),
            false => name,
        });
        self.imports.push(Import { name, path, line, reach });
    }

    fn mention(&mut self, mention: Mention) {
        if mention.path.first().is_some_and(|first| first != "Self") {
            self.mentions.push(mention);
        }
    }

    /// Takes the paths among the tokens of a macro, which have no grammar of their own.
    fn scan(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Group(group) => self.scan(group.stream()),
                TokenTree::Ident(ident) if names_item(&tokens, at) => {
                    let mut path = vec![name(ident)];
                    while let Some(next) = next_segment(&tokens[at + 1..]) {
                        path.push(next);
                        at += 3;
                    }
                    let is_macro = tokens.get(at + 1).is_some_and(|next| is_punct(next, '!'));
                    self.mention(Mention { path, line: line(ident), is_macro });
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'ast> Visit<'ast> for Source {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item;
        if let Item::Mod(item) = item {
            return self.declare_module(item);
        }
        if attributes(item).is_some_and(is_of_tests) {
            return;
        }
        match item {
            Item::Use(item) => {
                if item.leading_colon.is_none() {
                    self.import(&item.tree, &[], reach(&item.vis));
                }
                return;
            }
            Item::Const(item) => self.declare(&item.ident, &item.vis, Kind::Value),
            Item::Enum(item) => self.declare(&item.ident, &item.vis, Kind::Type),
            Item::Fn(item) => self.declare(&item.sig.ident, &item.vis, Kind::Value),
            Item::Static(item) => self.declare(&item.ident, &item.vis, Kind::Value),
            Item::Struct(item) => self.declare(&item.ident, &item.vis, Kind::Type),
            Item::Trait(item) => self.declare(&item.ident, &item.vis, Kind::Type),
            Item::Type(item) => self.declare(&item.ident, &item.vis, Kind::Type),
            Item::Union(item) => self.declare(&item.ident, &item.vis, Kind::Type),
            Item::Macro(item) => {
                if let Some(ident) = &item.ident {
                    self.declare(ident, &syn::Visibility::Inherited, Kind::Macro);
                } else if item.mac.path.is_ident("include")
                    && let Some(TokenTree::Literal(file)) =
                        item.mac.tokens.clone().into_iter().next()
                {
                    self.included.push(file.to_string().trim_matches('"').to_owned());
                }
            }
            Item::ForeignMod(block) => {
                for item in &block.items {
                    match item {
                        syn::ForeignItem::Fn(item) => {
                            self.declare(&item.sig.ident, &item.vis, Kind::Value);
                        }
                        syn::ForeignItem::Static(item) => {
                            self.declare(&item.ident, &item.vis, Kind::Value);
                        }
                        syn::ForeignItem::Type(item) => {
                            self.declare(&item.ident, &item.vis, Kind::Type)
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let names = path.segments.iter().map(|segment| name(&segment.ident));
            let (path, line) = (names.collect(), line(&first.ident));
            self.mention(Mention { path, line, is_macro: false });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let path: Vec<String> = item.path.segments.iter().map(|part| name(&part.ident)).collect();
        if let Some(first) = item.path.segments.first() {
            self.mention(Mention { path, line: line(&first.ident), is_macro: true });
        }
        self.scan(item.tokens.clone());
    }

    /// Of an attribute, `name = path` and `name = "path"` are uses; its other words are its own.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let syn::Meta::List(list) = &attribute.meta else { return };
        let tokens: Vec<TokenTree> = list.tokens.clone().into_iter().collect();
        for (at, token) in tokens.iter().enumerate().skip(1) {
            if !is_punct(&tokens[at - 1], '=') {
                continue;
            }
            match token {
                TokenTree::Ident(_) => {
                    let value = tokens[at..].iter().take_while(|token| !is_punct(token, ','));
                    self.scan(value.cloned().collect());
                }
                TokenTree::Literal(literal) if list.path.is_ident("serde") => {
                    let text = literal.to_string();
                    let path = text.trim_matches('"').split("::").map(str::to_owned).collect();
                    let line = literal.span().start().line;
                    self.mention(Mention { path, line, is_macro: false });
                }
                _ => {}
            }
        }
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn name(ident: &syn::Ident) -> String {
    ident.to_string().trim_start_matches("r#").to_owned()
}

fn line(ident: &syn::Ident) -> usize {
    ident.span().start().line
}

fn reach(vis: &syn::Visibility) -> Reach {
    match vis {
        syn::Visibility::Public(_) => Reach::Public,
        syn::Visibility::Restricted(_) => Reach::Crate,
        syn::Visibility::Inherited => Reach::Private,
    }
}

fn attributes(item: &syn::Item) -> Option<&[syn::Attribute]> {
    use syn::Item;
    Some(match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => return None,
    })
}

/// Returns true when `#[test]`, or a `#[cfg]` of tests alone, is among the attributes.
fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) if list.path.is_ident("cfg") => needs_test(list.tokens.clone()),
        _ => false,
    })
}

/// Returns true for the condition `test`, or `all` with `test` in it.
fn needs_test(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    tokens.iter().enumerate().any(|(at, token)| match token {
        TokenTree::Ident(ident) if ident == "test" => true,
        TokenTree::Group(group) => {
            let is_all = |before: &TokenTree| matches!(before, TokenTree::Ident(i) if i == "all");
            at > 0 && is_all(&tokens[at - 1]) && needs_test(group.stream())
        }
        _ => false,
    })
}

fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &pair.value else {
        return None;
    };
    pair.path.is_ident("path").then(|| path.value())
}

fn is_punct(token: &TokenTree, punct: char) -> bool {
    matches!(token, TokenTree::Punct(found) if found.as_char() == punct)
}

/// Returns true when the identifier at `at` may name an item.
///
/// It is no field, method, lifetime or variable of a macro, and no path goes before it.
fn names_item(tokens: &[TokenTree], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|at| &tokens[at]);
    let is = |back, punct| before(back).is_some_and(|token| is_punct(token, punct));
    let is_crate = matches!(&tokens[at], TokenTree::Ident(ident) if ident == "crate");
    let is_member = is(1, '.') && !is(2, '.');
    let is_variable = is(1, '$') && !is_crate;
    let follows_path = is(1, ':') && is(2, ':');
    !is_member && !is_variable && !is(1, '\'') && !follows_path
}

/// The name after `::`.
fn next_segment(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [first, second, TokenTree::Ident(next), ..]
            if is_punct(first, ':') && is_punct(second, ':') =>
        {
            Some(name(next))
        }
        _ => None,
    }
}
