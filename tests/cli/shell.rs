//! The tests check that help, completions and the manual agree. All three come from one definition.

use super::{finish, run, trickle};

#[test]
fn every_command_has_help_a_manual_page_and_completions() {
    let help = run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    let commands = help.out.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let commands: Vec<&str> = commands.filter_map(|l| l.strip_prefix("  ")?.split(' ').next()).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|c| !c.is_empty() && *c != "help").collect();
    assert!(commands.contains(&"lint") && commands.contains(&"doctor"), "{commands:?}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).out.contains("TRICKLE_COMPLETE"), "{shell}");
    }
    // The completion script of bash calls the program in this way.
    let asks = [("TRICKLE_COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", "1"), ("_CLAP_IFS", "\n")];
    let completed = finish(trickle().args(["--", "trickle", ""]).envs(asks)).out;
    for command in commands {
        let page = run(&["man", command]);
        assert!(
            page.code == 0 && page.out.contains(&format!("trickle\\-{command}")),
            "{command}: {}",
            page.out
        );
        assert!(completed.lines().any(|l| l == command), "{command}: {completed}");
        assert_eq!(run(&[command, "--help"]).code, 0, "{command}");
    }
    assert!(run(&["man"]).out.contains(".TH trickle 1"));
}

#[test]
fn wrong_usage_is_exit_code_2_with_nothing_on_standard_output() {
    for args in [&["lnt"][..], &["man", "nothing"], &["completions", "tcsh"], &["lint", "--nope"], &[]] {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(!ran.err.is_empty());
    }
    assert!(run(&["lnt"]).err.contains("'lint'"), "a near miss is suggested");
}

#[test]
fn bad_watch_and_metrics_options_are_refused_before_connecting() {
    for (args, says) in [
        (&["run", "--metrics", "nowhere"][..], "127.0.0.1:9187"),
        (&["run", "--metrics", "127.0.0.1"], "127.0.0.1:9187"),
        (&["run", "--metrics", "127.0.0.1:99999"], "127.0.0.1:9187"),
        (&["run", "--log-format", "xml"], "json"),
        (&["status", "--interval", "1s"], "--watch"),
        (&["status", "--watch", "--interval", "often"], "500ms"),
        (&["status", "--watch", "--indexes"], "--indexes"),
        (&["status", "--watch"], "terminal"),
    ] {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.contains(says), "{args:?}: {}", ran.err);
    }
}

#[test]
fn the_version_is_the_crates() {
    assert_eq!(run(&["--version"]).out, format!("trickle {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_failure_for_programs_is_one_line_of_json_on_standard_error() {
    let error = |args: &[&str]| {
        let ran = run(args);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.lines().count()), (2, "", 1), "{}", ran.err);
        serde_json::from_str::<serde_json::Value>(&ran.err).unwrap()["error"].clone()
    };
    let usage = error(&["history", "--json"]);
    assert!(usage["message"].as_str().unwrap().contains("required arguments"), "{usage}");
    assert!(usage["detail"].as_str().unwrap().contains("<NAME>"), "{usage}");
    let file = error(&["lint", "nowhere.sql", "--json"]);
    assert!(file["message"].as_str().unwrap().contains("nowhere.sql") && file["exit_code"] == 2, "{file}");
    let query = error(&["explain", "--json", "--schema", "schema.sql", "--query", "SELECT id FROM custmers"]);
    assert_eq!(
        (&query["sqlstate"], &query["findings"][0]["column"]),
        (&"42P01".into(), &16.into()),
        "{query}"
    );
}
