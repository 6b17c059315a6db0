//! Removes connection strings from messages. A message about a wrong command line quotes an argument. If the
//! user typed a connection string in a wrong place, the quoted argument may contain a password.

use trickle_client::connect::may_hold_password;

/// Returns a message without those arguments of the command line that may hold a password. An argument is
/// found in the message both as it was typed and in the form of a JSON string.
pub(crate) fn hidden(text: &str) -> String {
    without(text, std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()))
}

fn without(text: &str, typed: impl Iterator<Item = String>) -> String {
    let mut text = text.to_owned();
    for argument in typed {
        let value = argument.split_once('=').filter(|_| argument.starts_with('-')).map(|(_, v)| v);
        for may in [Some(argument.as_str()), value].into_iter().flatten().filter(|t| may_hold_password(t)) {
            let escaped = serde_json::Value::from(may).to_string();
            for form in [may, escaped.trim_matches('"')] {
                text = text.replace(form, "…");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn only_what_looks_like_a_connection_is_hidden() {
        let said = |typed: &str, text: &str| without(text, [typed.to_owned()].into_iter());
        let wrong = |typed: &str| said(typed, &format!("unexpected argument '{typed}' found"));
        for typed in [
            "postgres://u:p w@h/db",
            "POSTGRES:/u:pw@h",
            "u:pw@h/db",
            "jdbc:postgresql://h/db?password=x",
            "host=h password='a b'",
            "--databse-url=u:pw@h",
        ] {
            assert_eq!(wrong(typed), "unexpected argument '…' found", "{typed}");
        }
        assert_eq!(said("--url=u:pw@h", "unexpected value 'u:pw@h'"), "unexpected value '…'");
        assert_eq!(said("u:\"@h", "{\"message\":\"u:\\\"@h\"}"), "{\"message\":\"…\"}");
        for typed in [
            "shop.sales",
            "--watch",
            "SELECT a::jsonb @> b FROM t",
            "a@b",
            "12:30",
            "--schedule=1s",
            "http://board",
        ] {
            assert_eq!(wrong(typed), format!("unexpected argument '{typed}' found"));
        }
    }
}
