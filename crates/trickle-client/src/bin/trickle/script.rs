//! Reads SQL files together: the tables that the files define, and the files' queries. Each query is compiled
//! over these tables and over the results of the other queries.

use crate::failure::Failure;
use crate::finding::{Finding, Place, Severity, SqlFile};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use trickle_client::catalog::Reach;
use trickle_core::catalog::{
    Catalog, Collation, ColumnDef, FuncSig, MemoryCatalog, TableDef, TableId, TableKind,
};
use trickle_core::parse::{Comment, Defined, ScriptStatement, StatementKind, parse_query, statements};
use trickle_core::types::Type;
use trickle_core::{Options, Reason, StreamTable, Verdict, compile};

/// The schema, if there is one, and the name.
type Name = (Option<String>, String);

/// Files with their tables and queries.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) files: Vec<SqlFile>,
    pub(crate) catalog: MemoryCatalog,
    /// Messages about texts that are wrong or were passed over.
    pub(crate) findings: Vec<Finding>,
    pub(crate) queries: Vec<Query>,
    /// The extensions, each with the place of its CREATE EXTENSION statement.
    extensions: Vec<(String, Place)>,
}

/// A query in a file.
pub(crate) struct Query {
    /// The name of the query, from the definition, the header or the file.
    pub(crate) name: Option<Name>,
    /// The text that is compiled: the query with the column names of the view or table that it defines.
    text: String,
    pub(crate) place: Place,
    /// The comments before the query.
    pub(crate) comments: Vec<Comment>,
    /// Whether the query stands in a file of definitions. Only other queries use such a query, and no advice
    /// on it is wanted.
    schema_only: bool,
    kind: TableKind,
    pub(crate) result: Compiled,
    /// The extensions that the query relies on.
    pub(crate) extensions: BTreeSet<String>,
}

/// The outcome of compiling a query.
pub(crate) enum Compiled {
    /// The query was not compiled yet.
    Waiting,
    /// The query is incremental.
    Incremental(Box<StreamTable>),
    /// The query can only be recomputed.
    FullRefresh(Vec<Reason>),
    /// The query is wrong.
    Wrong(Box<trickle_core::Error>),
    /// The query reads the result of another query, of this name. That query is wrong or not incremental, so
    /// the columns of its result are unknown.
    Unknown(String),
}

impl Script {
    /// Returns the indexes by which the rows of a table are found. Only a server would know the number of
    /// rows.
    pub(crate) fn reach(&self, def: &TableDef) -> Reach {
        Reach { indexes: self.catalog.indexes(def), ..Reach::default() }
    }

    /// Reads the files with definitions.
    pub(crate) fn read_schemas(&mut self, paths: &[String]) -> Result<(), Failure> {
        for path in paths {
            let text = read(path)?;
            self.add(path, text, true);
        }
        Ok(())
    }

    /// Reads a file with queries. Definitions of tables in the file count, too.
    pub(crate) fn read_queries(&mut self, path: &str) -> Result<(), Failure> {
        let text = read(path)?;
        self.add(path, text, false);
        Ok(())
    }

    /// Adds a text. If `schema` is true, only the definitions in the text are used.
    pub(crate) fn add(&mut self, name: &str, text: String, schema: bool) {
        let file = self.files.len();
        self.files.push(SqlFile { name: name.to_owned(), text });
        let text = self.files[file].text.clone();
        let whole = Place { file, span: 0..text.len(), prefix: 0 };
        match statements(&text) {
            Err(e) => self.findings.push(whole.error(&self.files, &e)),
            Ok(found) => {
                let is_query = |s: &&ScriptStatement| s.kind == StatementKind::Query;
                let alone = found.iter().filter(is_query).count() == 1;
                // Rows follow a COPY … FROM stdin, and a row may begin with any word.
                let rows = |s: &ScriptStatement| {
                    text.get(s.span.start..)
                        .and_then(|t| t.get(..4))
                        .is_some_and(|t| t.eq_ignore_ascii_case("copy"))
                };
                let mut copied = schema;
                for s in found {
                    copied |= rows(&s);
                    if s.kind == StatementKind::Unknown {
                        if !copied {
                            self.not_sql(file, &text, &s);
                        }
                        continue;
                    }
                    self.statement(file, &text, s, schema, alone);
                }
            }
        }
    }

    fn statement(&mut self, file: usize, text: &str, s: ScriptStatement, schema: bool, alone: bool) {
        let place = Place { file, span: s.span.start..s.span.end, prefix: 0 };
        let whole = &text[place.span.clone()];
        let (name, kind, text, place) = match s.kind {
            StatementKind::Other | StatementKind::Unknown => return self.passed_over(whole, &place, schema),
            StatementKind::Schema => return self.define(whole, &place, schema),
            StatementKind::Query if schema => return,
            StatementKind::Query => {
                let name = alone.then(|| file_name(&self.files[file].name, &s.comments)).flatten();
                (name, TableKind::StreamTable, whole.to_owned(), place)
            }
            StatementKind::Defines { object, name, columns, body } => {
                if object == Defined::View {
                    self.define(whole, &place, schema);
                    if schema {
                        return;
                    }
                }
                let body = body.start..body.end;
                let (text, prefix) = renamed(&text[body.clone()], &columns);
                let kind = if schema { TableKind::MaterializedView } else { TableKind::StreamTable };
                let name = (object != Defined::View).then_some(name);
                (name, kind, text, Place { file, span: body, prefix })
            }
        };
        self.queries.push(Query {
            name,
            text,
            place,
            comments: s.comments,
            schema_only: schema,
            kind,
            result: Compiled::Waiting,
            extensions: BTreeSet::new(),
        });
    }

    /// Reports an error in a text that does not begin as a statement does.
    fn not_sql(&mut self, file: usize, text: &str, s: &ScriptStatement) {
        let place = Place { file, span: s.span.start..s.span.end, prefix: 0 };
        if let Err(e) = parse_query(&text[place.span.clone()]) {
            self.findings.push(place.error(&self.files, &e));
        }
    }

    /// Warns that a statement that writes is not checked, since a user may believe that the query in the
    /// statement is checked. Statements in a file of definitions bring no warning, since such a file may hold
    /// data. Statements of other kinds bring no warning, since they have other purposes.
    fn passed_over(&mut self, text: &str, place: &Place, schema: bool) {
        let first = text.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_uppercase();
        if schema || !["INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY"].contains(&first.as_str()) {
            return;
        }
        let message = format!("this {first} is passed over: it is neither a query nor the definition of one");
        let finding = place.finding(&self.files, None, Severity::Warning, "not-checked", message);
        let help = "A stream table holds the result of a SELECT, VALUES or WITH statement.";
        self.findings.push(Finding { help: Some(help.to_owned()), ..finding });
    }

    /// Applies a statement's definitions of tables. A statement that the parser cannot read is passed over,
    /// since a dump holds much that no query reads. If the statement is a CREATE TABLE, the failure is an
    /// error.
    fn define(&mut self, text: &str, place: &Place, schema: bool) {
        let defined = self.catalog.run(text);
        for doubt in self.catalog.take_doubts() {
            let severity = Severity::Warning;
            let code = "unknown-type".to_owned();
            self.findings.push(Finding { severity, code, ..place.error(&self.files, &doubt) });
        }
        for name in self.catalog.extensions() {
            if self.extensions.iter().all(|(known, _)| known != name) {
                self.extensions.push((name.to_owned(), place.clone()));
            }
        }
        let Err(e) = defined else { return };
        let mut finding = place.error(&self.files, &e);
        let start: Vec<String> = text.split_whitespace().take(2).map(str::to_uppercase).collect();
        if e.is_syntax() && start != ["CREATE", "TABLE"] {
            finding.severity = Severity::Warning;
            finding.message =
                format!("this statement is not understood and passed over: {}", finding.message);
            if schema {
                tracing::info!("{}", finding.render(&self.files, false));
                return;
            }
        }
        self.findings.push(finding);
    }

    /// Compiles every query. A query that reads the result of another query is compiled after that query.
    /// Queries that read each other in a circle are wrong.
    pub(crate) fn compile(&mut self) {
        loop {
            let mut progress = false;
            for i in 0..self.queries.len() {
                if matches!(self.queries[i].result, Compiled::Waiting)
                    && let Some(result) = self.compile_one(i)
                {
                    self.queries[i].result = result;
                    progress = true;
                }
            }
            if !progress {
                break;
            }
        }
        for q in self.queries.iter_mut().filter(|q| matches!(q.result, Compiled::Waiting)) {
            let name = q.name.as_ref().map_or("this query", |n| &n.1);
            let e =
                trickle_core::Error::cycle(format!("\"{name}\" reads its own result, or a query that does"));
            let e = e.hint("Stream tables cannot depend on each other in a circle.");
            q.result = Compiled::Wrong(Box::new(e));
        }
    }

    /// Compiles one query. Returns `None` if this query reads the result of a query that is not compiled yet.
    fn compile_one(&mut self, i: usize) -> Option<Compiled> {
        let q = &self.queries[i];
        let (schema, name) = q.name.clone().unwrap_or((None, "query".into()));
        let catalog =
            Recording { inner: &self.catalog, missed: RefCell::default(), extensions: RefCell::default() };
        let options = Options::new(schema.as_deref().unwrap_or("public"), &name);
        let compiled = compile(&q.text, &catalog, &options);
        let (missed, extensions) = (catalog.missed.into_inner(), catalog.extensions.into_inner());
        self.queries[i].extensions = extensions;
        match compiled {
            Ok(Verdict::Incremental(table)) => {
                self.register(i, &table);
                Some(Compiled::Incremental(table))
            }
            Ok(Verdict::FullRefresh(reasons)) => Some(Compiled::FullRefresh(reasons)),
            Err(e) => {
                let named = |m: &Name| {
                    let is =
                        |(j, q): &(usize, &Query)| *j != i && q.name.as_ref().is_some_and(|n| same(n, m));
                    self.queries.iter().enumerate().find(is).map(|(_, q)| q)
                };
                match missed.iter().find_map(named) {
                    None => Some(Compiled::Wrong(Box::new(e))),
                    Some(Query { result: Compiled::Waiting, .. }) => None,
                    Some(other) => Some(Compiled::Unknown(other.name.clone().unwrap_or_default().1)),
                }
            }
        }
    }

    /// Makes the result of a query readable under its name. If a table already has the name, the table stays.
    fn register(&mut self, i: usize, table: &StreamTable) {
        let q = &self.queries[i];
        let Some((schema, name)) = &q.name else { return };
        let result = table.graph().node(table.query());
        let columns = result
            .schema()
            .columns()
            .iter()
            .zip(table.columns())
            .map(|(c, name)| ColumnDef::new(name.clone(), c.ty.clone(), c.nullable));
        let mut def = self.catalog.new_table(name, columns.collect());
        def.schema = Arc::from(schema.as_deref().unwrap_or("public"));
        def.keys = result.props().keys.iter().map(|k| k.iter().collect()).collect();
        def.kind = q.kind;
        let _ = self.catalog.add_table(def);
    }

    /// Reports each extension whose objects are known only from a list, if an incremental query relies on
    /// these objects. Queries in files of definitions do not matter here. Each extension is reported once.
    pub(crate) fn listed_extensions(&self) -> Vec<Finding> {
        let good = self.asked().filter(|q| matches!(q.result, Compiled::Incremental(_)));
        let used: BTreeSet<&String> = good.flat_map(|q| &q.extensions).collect();
        let listed = |(name, place): &(String, Place)| {
            let message =
                format!("what extension \"{name}\" has is known from a list here: the server decides");
            let finding = place.finding(&self.files, None, Severity::Advice, "known-from-list", message);
            let help = "\"trickle explain\" without --schema asks the server.".to_owned();
            Finding { label: Some("is created here"), help: Some(help), ..finding }
        };
        self.extensions.iter().filter(|(name, _)| used.contains(name)).map(listed).collect()
    }

    /// Returns the queries of the checked files, without those in files of definitions.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Query> {
        self.queries.iter().filter(|q| !q.schema_only)
    }
}

impl Query {
    /// Returns the value of the comment `-- key: value` before the query, and the comment.
    pub(crate) fn header(&self, key: &str) -> Option<(&str, &Comment)> {
        header(&self.comments, key)
    }
}

/// Returns the value of the first comment `-- key: value` with this key, and the comment.
pub(crate) fn header<'a>(comments: &'a [Comment], key: &str) -> Option<(&'a str, &'a Comment)> {
    comments.iter().find_map(|c| {
        let (k, value) = c.text.split_once(':')?;
        k.trim().eq_ignore_ascii_case(key).then_some((value.trim(), c))
    })
}

/// The keys of comments before a query that have a meaning.
const HEADERS: [&str; 5] = ["name", "schedule", "mode", "diamond_consistency", "snapshots"];

/// Returns an error for the first comment `-- key: value` whose key is probably a misspelling of a key in
/// [`HEADERS`].
pub(crate) fn misspelt(comments: &[Comment]) -> Option<(trickle_core::Error, &Comment)> {
    comments.iter().find_map(|c| {
        let key = c.text.split_once(':')?.0.trim().to_lowercase();
        let known = HEADERS.into_iter().find(|known| is_nearly(&key, known))?;
        let error = trickle_core::Error::setting(format!("\"{key}\" says nothing of a stream table"));
        Some((error.hint(format!("Did you mean {known}?")), c))
    })
}

/// Whether a word may be a misspelling of a known word. A short known word resembles many other words, so a
/// misspelling of it must have the same letters.
fn is_nearly(word: &str, known: &str) -> bool {
    let letters = |s: &str| {
        let mut letters: Vec<char> = s.chars().collect();
        letters.sort_unstable();
        letters
    };
    match word == known {
        true => false,
        false if known.len() > 5 => strsim::damerau_levenshtein(word, known) <= 2,
        false => letters(word) == letters(known),
    }
}

/// Reads a file, or standard input.
pub(crate) fn read(path: &str) -> Result<String, Failure> {
    let bytes =
        if path == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    bytes.map_err(|e| {
        Failure::input(format!("cannot read \"{path}\": {e}"))
            .hint("Name a file with SQL, or - for standard input.")
    })
}

/// Returns the name of the only query in a file. The name comes from a comment such as `-- name:
/// shop.totals`, else from the name of the file.
fn file_name(path: &str, comments: &[Comment]) -> Option<Name> {
    if let Some((name, _)) = header(comments, "name") {
        let (schema, name) = name.split_once('.').map_or((None, name), |(s, n)| (Some(s.to_owned()), n));
        return Some((schema, name.to_owned()));
    }
    let stem = Path::new(path).file_stem()?.to_str()?;
    (stem != "-").then(|| (None, stem.to_owned()))
}

/// Returns the query with these column names, and the number of bytes that were put in front of the query.
fn renamed(body: &str, columns: &[String]) -> (String, usize) {
    if columns.is_empty() {
        return (body.to_owned(), 0);
    }
    let quoted: Vec<String> = columns.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
    let prefix = "SELECT * FROM (";
    // The body may end with a comment, so the parenthesis after the body is on a new line.
    (format!("{prefix}{body}\n) AS renamed ({})", quoted.join(", ")), prefix.len())
}

fn same(a: &Name, b: &Name) -> bool {
    let schema = |n: &Name| n.0.clone().unwrap_or_else(|| "public".into());
    a.1 == b.1 && schema(a) == schema(b)
}

/// A catalog that notes the relations that were not found, and the extensions that own the objects that were
/// found.
struct Recording<'a> {
    inner: &'a MemoryCatalog,
    missed: RefCell<Vec<Name>>,
    extensions: RefCell<BTreeSet<String>>,
}

impl Recording<'_> {
    fn note(&self, extension: Option<&str>) {
        self.extensions.borrow_mut().extend(extension.map(str::to_owned));
    }

    fn note_call(&self, found: Option<Arc<FuncSig>>) -> Option<Arc<FuncSig>> {
        if let Some(sig) = &found {
            self.note(sig.schema.as_ref().and_then(|s| self.inner.extension_of(s, &sig.name)));
        }
        found
    }
}

impl Catalog for Recording<'_> {
    fn table(&self, schema: Option<&str>, name: &str) -> Option<Arc<TableDef>> {
        let found = self.inner.table(schema, name);
        if found.is_none() {
            self.missed.borrow_mut().push((schema.map(str::to_owned), name.to_owned()));
        }
        for column in found.iter().flat_map(|t| &t.columns) {
            self.note(self.inner.extension_of_type(&column.ty));
        }
        found
    }
    fn table_by_id(&self, id: TableId) -> Option<Arc<TableDef>> {
        self.inner.table_by_id(id)
    }
    fn view(&self, schema: Option<&str>, name: &str) -> Option<String> {
        self.inner.view(schema, name)
    }
    fn returns_set(&self, schema: Option<&str>, name: &str) -> bool {
        self.inner.returns_set(schema, name)
    }
    fn function(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        self.note_call(self.inner.function(schema, name, args))
    }
    fn function_by_names(
        &self,
        schema: Option<&str>,
        name: &str,
        names: &[Option<&str>],
        args: &[Type],
    ) -> Option<Arc<FuncSig>> {
        self.note_call(self.inner.function_by_names(schema, name, names, args))
    }
    fn operator(&self, schema: Option<&str>, name: &str, args: &[Type]) -> Option<Arc<FuncSig>> {
        self.note_call(self.inner.operator(schema, name, args))
    }
    fn fields(&self, ty: &Type) -> Option<Vec<(Arc<str>, Type)>> {
        self.inner.fields(ty)
    }
    fn collation(&self, schema: Option<&str>, name: &str) -> Option<Collation> {
        self.inner.collation(schema, name)
    }
    fn named_type(&self, schema: Option<&str>, name: &str) -> Option<Type> {
        let found = self.inner.named_type(schema, name);
        self.note(found.as_ref().and_then(|ty| self.inner.extension_of_type(ty)));
        found
    }
    fn is_opaque(&self, ty: &Type) -> bool {
        self.inner.is_opaque(ty)
    }
    fn doubt(&self, name: &str, types: &[Type]) -> Option<String> {
        self.inner.doubt(name, types)
    }
    fn is_constrained(&self, schema: Option<&str>, name: &str) -> bool {
        self.inner.is_constrained(schema, name)
    }
    fn table_names(&self) -> Vec<String> {
        self.inner.table_names()
    }
}
