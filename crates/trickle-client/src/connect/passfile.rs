//! The password file `~/.pgpass`. A line reads `host:port:database:user:password`. A field `*` fits any
//! value, and a `\` precedes each `:` or `\` within a field.

use super::Secret;
use std::path::Path;

/// Reads a password file. Returns `None` if the file does not exist, or if other users may read the file.
/// PostgreSQL's own tools ignore a file that others may read, too.
pub(super) fn read(path: &Path) -> Option<Secret> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o077 != 0 {
        tracing::warn!(
            "password file {0} is not read, because others may read it too; chmod 600 {0}",
            path.display()
        );
        return None;
    }
    std::fs::read_to_string(path).ok().map(Secret::from)
}

/// Returns the password of the first line that fits this host, port, database and user.
pub(super) fn find(text: &Secret, host: &str, port: u16, database: &str, user: &str) -> Option<Secret> {
    let port = port.to_string();
    let wanted = [host, &port, database, user];
    text.reveal().lines().filter(|l| !l.starts_with('#')).find_map(|line| {
        let fields = split(line);
        let fits = |(field, wanted): (&String, &&str)| field == "*" || field == wanted;
        (fields.len() >= 5 && fields.iter().zip(&wanted).all(fits)).then(|| fields[4].as_str().into())
    })
}

/// Splits a line into its fields. The password is the fifth field. The caller ignores a colon after the
/// password, and all that follows.
fn split(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        let next = if c == '\\' { chars.next() } else { Some(c) };
        match (c, next) {
            (':', _) => fields.push(String::new()),
            (_, next) => {
                if let Some(field) = fields.last_mut() {
                    field.extend(next);
                }
            }
        }
    }
    fields
}
