//! Reads the modules of a library or a binary from its files. What is there for tests alone is left out.

use super::error::StructureError;
use super::modules::{Item, Mention, Tree};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::{Path, PathBuf};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItemFn, ItemMod, ItemUse, Lit, Macro, Meta, Token, UseTree};

/// Reads the file `root` and every file that it leads to.
pub fn read(root: &Path) -> Result<Tree, StructureError> {
    let mut tree = Tree::default();
    read_file(&mut tree, root, None, Vec::new(), true)?;
    Ok(tree)
}

/// Reads a file as a module. `is_root`: the modules that it declares lie beside it, as with `mod.rs`.
fn read_file(
    tree: &mut Tree,
    file: &Path,
    parent: Option<usize>,
    path: Vec<String>,
    is_root: bool,
) -> Result<usize, StructureError> {
    let source = std::fs::read_to_string(file).map_err(|e| StructureError::of(file, e))?;
    let parsed = syn::parse_file(&source).map_err(|e| StructureError::of(file, e))?;
    tree.files.push(file.to_owned());
    let module = tree.add(tree.files.len() - 1, parent, path);
    let folder = file.parent().unwrap_or(Path::new("")).to_owned();
    let below = if is_root { folder.clone() } else { file.with_extension("") };
    let items = if parsed.attrs.iter().any(is_for_tests) { &[][..] } else { &parsed.items };
    Reader::new(tree, module, folder, below).read(items)?;
    Ok(module)
}

/// Fills a module of a tree.
struct Reader<'a> {
    tree: &'a mut Tree,
    module: usize,
    /// Where the module's file lies.
    folder: PathBuf,
    /// Where the files of the modules that it declares lie.
    below: PathBuf,
    failure: Option<StructureError>,
    /// How many functions and blocks are open: names that they import are not the module's.
    depth: usize,
}

impl<'a> Reader<'a> {
    fn new(tree: &'a mut Tree, module: usize, folder: PathBuf, below: PathBuf) -> Self {
        Self { tree, module, folder, below, failure: None, depth: 0 }
    }

    /// Reads everything but what is for tests alone.
    fn read(mut self, items: &[syn::Item]) -> Result<(), StructureError> {
        for item in items {
            self.visit_item(item);
        }
        self.failure.map_or(Ok(()), Err)
    }

    fn define(&mut self, name: String, item: Item) {
        self.tree.modules[self.module].items.entry(name).or_default().push(item);
    }

    fn mention(&mut self, path: Vec<String>, is_reexport: bool) {
        self.tree.modules[self.module].mentions.push(Mention { path, is_reexport });
    }

    /// A path in code. A name alone is one of the module's if it is a type's, or is called.
    fn path(&mut self, path: Vec<String>, is_called: bool) {
        let is_type = path.first().is_some_and(|name| name.starts_with(char::is_uppercase));
        if path.first().is_some_and(|name| name == "Self") || (path.len() == 1 && !is_type && !is_called) {
            return;
        }
        self.mention(path, false);
    }

    /// The paths among tokens that nobody has parsed: arguments of macros.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut after_dot = false;
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Ident(ident) => {
                    let mut path = vec![ident.to_string()];
                    while is_colon(tokens.peek()) {
                        let mut ahead = tokens.clone();
                        ahead.next();
                        if !is_colon(ahead.peek()) {
                            break;
                        }
                        ahead.next();
                        let Some(TokenTree::Ident(next)) = ahead.peek() else { break };
                        path.push(next.to_string());
                        ahead.next();
                        tokens = ahead;
                    }
                    let called = matches!(tokens.peek(), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
                    if !(after_dot && path.len() == 1) {
                        self.path(path, called);
                    }
                    after_dot = false;
                }
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    after_dot = false;
                }
                TokenTree::Punct(punct) => after_dot = punct.as_char() == '.',
                TokenTree::Literal(_) => after_dot = false,
            }
        }
    }

    /// Every name that a `use` brings.
    fn imports(&mut self, tree: &UseTree, prefix: &[String], is_reexport: bool) {
        match tree {
            UseTree::Path(path) => {
                let prefix = [prefix, &[path.ident.to_string()]].concat();
                self.imports(&path.tree, &prefix, is_reexport);
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.import(prefix.to_vec(), prefix.last().cloned(), is_reexport);
            }
            UseTree::Name(name) => {
                let name = name.ident.to_string();
                self.import([prefix, std::slice::from_ref(&name)].concat(), Some(name), is_reexport);
            }
            UseTree::Rename(rename) => {
                let path = match rename.ident.to_string() {
                    name if name == "self" => prefix.to_vec(),
                    name => [prefix, &[name]].concat(),
                };
                let name = rename.rename.to_string();
                self.import(path, Some(name).filter(|name| name != "_"), is_reexport);
            }
            UseTree::Glob(_) => {
                if self.depth == 0 {
                    self.tree.modules[self.module].globs.push(prefix.to_vec());
                }
                let path = [prefix, &["*".to_owned()]].concat();
                self.mention(path, is_reexport);
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.imports(tree, prefix, is_reexport)),
        }
    }

    fn import(&mut self, path: Vec<String>, name: Option<String>, is_reexport: bool) {
        if let Some(name) = name
            && self.depth == 0
        {
            self.define(name, Item::Import(path.clone()));
        }
        self.mention(path, is_reexport);
    }

    /// A module in a file of its own.
    fn declared(&mut self, item: &ItemMod, path: Vec<String>) -> Result<usize, StructureError> {
        let name = item.ident.to_string();
        if let Some(given) = item.attrs.iter().find_map(given_path) {
            let file = self.folder.join(given);
            return read_file(self.tree, &file, Some(self.module), path, true);
        }
        let beside = self.below.join(format!("{name}.rs"));
        if beside.is_file() {
            return read_file(self.tree, &beside, Some(self.module), path, false);
        }
        read_file(self.tree, &self.below.join(&name).join("mod.rs"), Some(self.module), path, true)
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self)) {
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        if self.depth == 0
            && let Some(name) = defined(item)
        {
            self.define(name, Item::Defined);
        }
        match item {
            syn::Item::Fn(_)
            | syn::Item::Impl(_)
            | syn::Item::Trait(_)
            | syn::Item::Const(_)
            | syn::Item::Static(_) => {
                self.deeper(|this| visit::visit_item(this, item));
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let name = item.ident.to_string();
        let path = [&self.tree.modules[self.module].path[..], std::slice::from_ref(&name)].concat();
        let child = match &item.content {
            Some((_, items)) => {
                let child = self.tree.add(self.tree.modules[self.module].file, Some(self.module), path);
                let below = self.below.join(&name);
                let reader = Reader::new(self.tree, child, below.clone(), below);
                reader.read(items).map(|()| child)
            }
            None => self.declared(item, path),
        };
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        match child {
            Ok(child) => self.define(name, Item::Module(child)),
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
        item.attrs.iter().for_each(|attribute| self.visit_attribute(attribute));
        if item.leading_colon.is_none() {
            self.imports(&item.tree, &[], is_reexport);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !item.attrs.iter().any(is_for_tests) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func
            && function.qself.is_none()
            && let Some(name) = function.path.get_ident()
        {
            self.path(vec![name.to_string()], true);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.path(names, false);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invoked: &'ast Macro) {
        if invoked.path.is_ident("cfg") {
            self.features(invoked.tokens.clone());
        }
        if invoked.path.segments.len() > 1 {
            self.visit_path(&invoked.path);
        }
        self.tokens(invoked.tokens.clone());
    }

    /// Paths in texts, as serde takes them, and features that code depends on.
    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        if attribute.path().is_ident("doc") {
            return;
        }
        let Meta::List(list) = &attribute.meta else { return };
        if list.path.is_ident("cfg") || list.path.is_ident("cfg_attr") {
            self.features(list.tokens.clone());
        }
        self.texts(list.tokens.clone());
        self.tokens(list.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

impl Reader<'_> {
    /// Paths that are written as texts.
    fn texts(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.texts(group.stream()),
                TokenTree::Literal(literal) => {
                    let Lit::Str(text) = Lit::new(literal) else { continue };
                    if let Ok(path) = text.parse::<syn::Path>()
                        && path.segments.len() > 1
                    {
                        self.path(path.segments.iter().map(|s| s.ident.to_string()).collect(), false);
                    }
                }
                _ => {}
            }
        }
    }

    /// `feature = "NAME"` anywhere among the tokens.
    fn features(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (at, token) in tokens.iter().enumerate() {
            match token {
                TokenTree::Group(group) => self.features(group.stream()),
                TokenTree::Ident(ident) if ident == "feature" => {
                    if let Some(TokenTree::Literal(name)) = tokens.get(at + 2) {
                        let name = name.to_string().trim_matches('"').to_owned();
                        self.tree.modules[self.module].features.push(name);
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_colon(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// The file that `#[path = "…"]` names.
fn given_path(attribute: &Attribute) -> Option<PathBuf> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    match &pair.value {
        Expr::Lit(syn::ExprLit { lit: Lit::Str(text), .. }) if pair.path.is_ident("path") => {
            Some(Path::new(&text.value()).to_owned())
        }
        _ => None,
    }
}

/// The name that an item gives to what it defines.
fn defined(item: &syn::Item) -> Option<String> {
    let ident = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn attributes(item: &syn::Item) -> &[Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether what has this attribute is there for tests alone.
fn is_for_tests(attribute: &Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    attribute.path().is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|condition| implies_test(&condition))
}

fn implies_test(condition: &Meta) -> bool {
    let parts = |list: &syn::MetaList| {
        list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).unwrap_or_default()
    };
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => parts(list).iter().any(implies_test),
        Meta::List(list) if list.path.is_ident("any") => {
            let parts = parts(list);
            !parts.is_empty() && parts.iter().all(implies_test)
        }
        _ => false,
    }
}
