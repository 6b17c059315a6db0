//! Help, completions, manual: derived from one definition, so that they cannot disagree with it.

use super::run;

#[test]
fn every_command_has_help_a_manual_page_and_completions() {
    let help = run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    let commands = help.out.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let commands: Vec<&str> = commands.filter_map(|l| l.strip_prefix("  ")?.split(' ').next()).collect();
    let commands: Vec<&str> = commands.into_iter().filter(|c| !c.is_empty() && *c != "help").collect();
    assert!(commands.contains(&"lint") && commands.contains(&"doctor"), "{commands:?}");
    let bash = run(&["completions", "bash"]).out;
    for command in commands {
        let page = run(&["man", command]);
        assert!(
            page.code == 0 && page.out.contains(&format!("trickle\\-{command}")),
            "{command}: {}",
            page.out
        );
        assert!(
            bash.contains(&format!("trickle__subcmd__{command}"))
                || bash.contains(&format!("trickle__{command}")),
            "{command}"
        );
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
fn the_version_is_the_crates() {
    assert_eq!(run(&["--version"]).out, format!("trickle {}\n", env!("CARGO_PKG_VERSION")));
}
