//! The keywords that can occur in calls, in lists by the place where they occur.

/// Keywords that occur before an expression or instead of an expression.
pub(super) const BEFORE: [&str; 12] = [
    "CONTENT",
    "DEFAULT",
    "DOCUMENT",
    "NAME",
    "RETURNING",
    "STANDALONE NO",
    "STANDALONE NO VALUE",
    "STANDALONE YES",
    "VERSION",
    "VERSION NO VALUE",
    "XMLATTRIBUTES",
    "XMLNAMESPACES",
];

/// Keywords that occur after an expression, a name or a type.
pub(super) const BEHIND: [&str; 54] = [
    "ABSENT ON NULL",
    "AS",
    "BY REF",
    "BY VALUE",
    "COLUMNS",
    "DEFAULT",
    "EMPTY ARRAY ON EMPTY",
    "EMPTY ARRAY ON ERROR",
    "EMPTY OBJECT ON EMPTY",
    "EMPTY OBJECT ON ERROR",
    "EMPTY ON EMPTY",
    "EMPTY ON ERROR",
    "ERROR ON EMPTY",
    "ERROR ON ERROR",
    "FALSE ON EMPTY",
    "FALSE ON ERROR",
    "FORMAT JSON",
    "FORMAT JSON ENCODING UTF8",
    "INDENT",
    "KEEP QUOTES",
    "KEEP QUOTES ON SCALAR STRING",
    "NO INDENT",
    "NULL ON EMPTY",
    "NULL ON ERROR",
    "NULL ON NULL",
    "OMIT QUOTES",
    "OMIT QUOTES ON SCALAR STRING",
    "ON EMPTY",
    "ON ERROR",
    "PASSING",
    "PASSING BY REF",
    "PASSING BY VALUE",
    "PRESERVE WHITESPACE",
    "RETURNING",
    "STRIP WHITESPACE",
    "TRUE ON EMPTY",
    "TRUE ON ERROR",
    "UNKNOWN ON EMPTY",
    "UNKNOWN ON ERROR",
    "VALUE",
    "WITH ARRAY WRAPPER",
    "WITH CONDITIONAL ARRAY WRAPPER",
    "WITH CONDITIONAL WRAPPER",
    "WITH UNCONDITIONAL ARRAY WRAPPER",
    "WITH UNCONDITIONAL WRAPPER",
    "WITH UNIQUE",
    "WITH UNIQUE KEYS",
    "WITH WRAPPER",
    "WITHOUT ARRAY WRAPPER",
    "WITHOUT CONDITIONAL ARRAY WRAPPER",
    "WITHOUT CONDITIONAL WRAPPER",
    "WITHOUT UNIQUE",
    "WITHOUT UNIQUE KEYS",
    "WITHOUT WRAPPER",
];

/// Keywords of a column definition.
pub(super) const COLUMN: [&str; 7] =
    ["EXISTS", "FOR ORDINALITY", "NESTED", "NESTED PATH", "NOT NULL", "NULL", "PATH"];

const SIGNS: [&str; 4] = [",", ":", "(", ")"];

pub(super) fn known(words: &str) -> Option<&'static str> {
    let lists = [&BEFORE[..], &BEHIND, &COLUMN, &SIGNS];
    lists.into_iter().flatten().copied().find(|known| *known == words)
}
