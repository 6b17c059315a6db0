//! `trickle run --metrics`, its log, and `trickle status --watch`, with real servers. The served values show
//! the work of the refresher and agree with the documentation. Requests delay neither refreshes nor other
//! requests.

use super::refresher::{PATIENCE, Refresher, holds, until};
use super::{BY_REGION, Ran, Role};
use crate::support::planted::{Said, assert_hidden};
use crate::support::private::{connect, newest_version, start};
use crate::support::{count, newest_server, run};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The answer to a request.
struct Reply {
    code: u16,
    head: String,
    body: String,
}

/// Sends a request, and reads until the server closes the connection.
fn exchange(to: SocketAddr, request: &str) -> Reply {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // The server may refuse the request before it has read all of it.
    let _ = stream.write_all(request.as_bytes());
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    assert_hidden(&text);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let code = head.split(' ').nth(1).and_then(|c| c.parse().ok()).unwrap_or(0);
    Reply { code, head: head.to_lowercase(), body: body.to_owned() }
}

fn get(to: SocketAddr, path: &str) -> Reply {
    exchange(to, &format!("GET {path} HTTP/1.1\r\nHost: {to}\r\n\r\n"))
}

/// Starts a refresher that serves on a free port, and returns the address that its log names. A thread reads
/// the rest of the log.
fn serving(command: Command) -> (Refresher, SocketAddr) {
    let (refresher, log) = Refresher::logging(command);
    let mut lines = BufReader::new(log).lines();
    let told = |line: &str| {
        let (_, rest) = line.split_once("status page and metrics at http://")?;
        rest.split('/').next()?.parse().ok()
    };
    let address = lines.by_ref().map_while(Result::ok).find_map(|l| told(&l)).unwrap();
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (refresher, address)
}

/// Returns the value of the metric with this name and labels, or 0 if the metric is absent.
fn value(metrics: &str, with: &str) -> f64 {
    let found = metrics.lines().find_map(|l| l.strip_prefix(with)?.trim().parse().ok());
    found.unwrap_or(0.0)
}

/// Scrapes until a metric is above `least`, and returns the scraped text.
fn above(to: SocketAddr, with: &str, least: f64) -> String {
    let late = Instant::now() + PATIENCE;
    loop {
        let text = get(to, "/metrics").body;
        if value(&text, with) > least {
            return text;
        }
        assert!(Instant::now() < late, "{with} is never above {least}:\n{text}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes the shop with a diamond of stream tables. The name of one stream table contains markup.
async fn shop(db: &crate::support::Db) -> Role {
    let app = Role::owner(db).await;
    app.does(&["init", "--quiet"]);
    for (name, query) in [
        ("by_region", BY_REGION),
        ("large", "SELECT region, total FROM by_region WHERE total > 10"),
        ("named", "SELECT region, orders FROM by_region"),
        ("\"<script>\"", "SELECT l.region, n.orders FROM large l JOIN named n USING (region)"),
    ] {
        app.does(&["create", name, "--query", query, "--schedule", "1s", "--quiet"]);
    }
    app
}

const CHANGE: &str = "UPDATE orders SET amount = amount + 1 WHERE id % 500 = 0";

/// Returns the names of the metrics that docs/seeing.md lists.
fn documented() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/seeing.md");
    let text = std::fs::read_to_string(file).unwrap();
    let names =
        text.lines().filter_map(|l| l.strip_prefix("| `trickle_")?.split('`').next().map(str::to_owned));
    names.map(|n| format!("trickle_{n}")).collect()
}

#[test]
fn metrics_follow_the_work_and_match_the_documentation() {
    newest_server(async |db| {
        let app = shop(db).await;
        let w = db.session().await;
        let (_refresher, to) = serving(app.command(&["run", "--metrics", "127.0.0.1:0"]));
        let rows = "trickle_rows_total{change=\"updated\",table=\"public.by_region\"}";
        app.run_sql(db, CHANGE).await;
        let first = value(&above(to, rows, 0.0), rows);
        app.run_sql(db, CHANGE).await;
        let text = above(to, rows, first);
        for (with, least) in [
            ("trickle_refresh_duration_seconds_count{table=\"public.by_region\"}", 1.0),
            ("trickle_delta_rows_total{table=\"public.by_region\"}", 1.0),
            ("trickle_refresh_phase_seconds_count{phase=\"execute\"}", 1.0),
            ("trickle_connected", 1.0),
            ("trickle_status_read", 1.0),
            ("trickle_status{status=\"ACTIVE\",table=\"public.large\"}", 1.0),
            ("trickle_period_seconds{table=\"public.large\"}", 1.0),
            ("trickle_buffer_limit_bytes{source=\"public.orders\"}", 1.0),
        ] {
            assert!(value(&text, with) >= least, "{with}:\n{text}");
        }
        // The lag of the second refresh is known. The lag is measured from the refresher's check before the
        // change, or from the first refresh.
        let text = above(to, "trickle_lag_seconds_count{table=\"public.by_region\"}", 0.0);
        let served: BTreeSet<String> = text
            .lines()
            .filter_map(|l| Some(l.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned()))
            .collect();
        // This metric has values only while a stream table is slow.
        let mut always = documented();
        assert!(always.remove("trickle_slowed_period_seconds"));
        assert_eq!(served, always);
        // The page and the metrics count and name a stream table whose refreshes fail.
        app.does(&[
            "create",
            "inverse",
            "--query",
            "SELECT id, 1 / (id - 40000) AS q FROM orders",
            "--schedule",
            "1s",
            "--quiet",
        ]);
        app.run_sql(db, "INSERT INTO orders VALUES (40000, 1, 1, 'n')").await;
        above(
            to,
            "trickle_refreshes_total{action=\"none\",outcome=\"failed\",table=\"public.inverse\"}",
            0.0,
        );
        above(to, "trickle_consecutive_errors{table=\"public.inverse\"}", 0.0);
        assert!(get(to, "/").body.contains("division by zero"));
        // After the drop of a stream table, no metrics name it.
        app.does(&["drop", "inverse", "--quiet"]);
        let late = Instant::now() + PATIENCE;
        while get(to, "/metrics").body.contains("public.inverse") {
            assert!(Instant::now() < late);
            std::thread::sleep(Duration::from_millis(100));
        }
        // The refresher and the reader of the page's data connect again after their connections are lost.
        count(&w, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").await;
        above(to, "trickle_errors_total{kind=\"connection\"}", 0.0);
        above(to, "trickle_connected", 0.0);
        above(to, "trickle_status_read", 0.0);
    });
}

/// Scrapes until a metric has the value `wanted`.
fn becomes(to: SocketAddr, with: &str, wanted: f64) {
    let late = Instant::now() + PATIENCE;
    while value(&get(to, "/metrics").body, with) != wanted {
        assert!(Instant::now() < late, "{with} never becomes {wanted}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `/healthz` tells a supervisor of several refreshers which refresher works, and which has lost its
/// database.
#[test]
fn health_tells_working_waiting_and_disconnected_refreshers() {
    newest_version(async |binaries| {
        let server = start(binaries, "health").await;
        let s = connect(&server, "postgres").await;
        run(&s, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)").await;
        let settings = format!("host={} user=postgres dbname=postgres", server.directory().display());
        let app = Role { name: "postgres".to_owned(), settings };
        app.does(&["init", "--quiet"]);
        app.does(&["create", "n", "--query", "SELECT count(*) AS n FROM t", "--schedule", "1s", "--quiet"]);
        let serve = || serving(app.command(&["run", "--metrics", "127.0.0.1:0"]));
        let (first, to) = serve();
        becomes(to, "trickle_leader", 1.0);
        let (_second, other) = serve();
        becomes(other, "trickle_connected", 1.0);
        becomes(other, "trickle_leader", 0.0);
        assert_eq!((get(to, "/healthz").code, get(other, "/healthz").code), (200, 200));
        assert!(get(other, "/metrics").body.contains("\ntrickle_leader 0"));
        drop(first);
        becomes(other, "trickle_leader", 1.0);
        server.stop();
        becomes(other, "trickle_connected", 0.0);
        let reply = get(other, "/healthz");
        assert!(reply.code == 503 && !reply.body.trim().is_empty(), "{}", reply.body);
        becomes(other, "trickle_leader", 0.0);
        assert_eq!(get(other, "/").code, 200, "the page says what is the matter");
    });
}

#[test]
fn the_status_page_lists_stream_tables_and_their_edges() {
    newest_server(async |db| {
        let app = shop(db).await;
        let (mut refresher, to) = serving(app.command(&["run", "--metrics", "127.0.0.1:0"]));
        let page = get(to, "/");
        assert_eq!(page.code, 200);
        for header in [
            "content-security-policy: default-src 'none';",
            "x-content-type-options: nosniff",
            "content-type: text/html; charset=utf-8",
            "cache-control: no-store",
        ] {
            assert!(page.head.contains(header), "{header}: {}", page.head);
        }
        let text = page.body.replace("<wbr>", "");
        for name in ["public.by_region", "public.large", "public.named", "public.&quot;&lt;script&gt;&quot;"]
        {
            assert!(text.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}: {}", page.body);
        }
        assert_eq!(page.body.matches("<script>").count(), 1, "its own");
        assert_eq!(page.body.matches("marker-end").count(), 6, "two sources, a diamond");
        let status: Value = serde_json::from_str(&get(to, "/status.json").body).unwrap();
        let edges: BTreeSet<(&str, &str)> = status["snapshot"]["edges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e[0].as_str().unwrap(), e[1].as_str().unwrap()))
            .collect();
        let expected = [
            ("public.by_region", "public.large"),
            ("public.by_region", "public.named"),
            ("public.customers", "public.by_region"),
            ("public.large", "public.\"<script>\""),
            ("public.named", "public.\"<script>\""),
            ("public.orders", "public.by_region"),
        ];
        assert_eq!(edges, BTreeSet::from(expected));
        let late = Instant::now() + PATIENCE;
        while get(to, "/healthz").code != 200 {
            assert!(Instant::now() < late);
        }
        let head = exchange(to, &format!("HEAD / HTTP/1.1\r\nHost: {to}\r\n\r\n"));
        assert_eq!((head.code, head.body.as_str()), (200, ""));
        assert_eq!(get(to, "/../etc/passwd").code, 404);
        let post = exchange(to, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nhi");
        assert!(post.code == 405 && post.head.contains("allow: get, head"), "{}", post.head);
        refresher.terminate();
        assert_eq!(refresher.ended().code(), Some(0));
    });
}

/// Returns the path of a headless browser, or None if none is installed (`./x setup` installs it).
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-headless-shell", "google-chrome", "chrome-headless-shell"];
    let found = std::env::split_paths(&path).flat_map(|dir| names.map(|n| dir.join(n))).find(|p| p.is_file());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "no browser was found");
        println!("left out: no browser was found: ./x setup installs one");
    }
    found
}

/// Catches a page that a browser shows wrongly, and a page that sends requests to other hosts. Catches also a
/// page whose content policy forbids the page's own script or style.
#[test]
fn a_browser_shows_the_page_and_what_went_wrong() {
    let Some(browser) = browser() else { return };
    newest_server(async |db| {
        let app = shop(db).await;
        let query = "SELECT region, 1 / (total - 1) AS part FROM by_region WHERE total < 2";
        app.does(&["create", "failing", "--query", query, "--schedule", "1s", "--quiet"]);
        let (_refresher, to) = serving(app.command(&["run", "--metrics", "127.0.0.1:0"]));
        app.run_sql(
            db,
            "INSERT INTO customers VALUES (99, 'one', 'one'); INSERT INTO orders VALUES (-1, 99, 1, 'one')",
        )
        .await;
        until(
            &db.session().await,
            "SELECT consecutive_errors > 0 FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'failing'",
        )
        .await;
        above(to, "trickle_errors_total{kind=\"refresh\"}", 0.0);
        let profile = std::env::temp_dir().join(format!("trickle-browser-{}", app.name));
        let mut shown = Command::new(&browser);
        shown.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--virtual-time-budget=4000",
        ]);
        shown.args([
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--dump-dom",
        ]);
        shown.arg(format!("--user-data-dir={}", profile.display())).arg(format!("http://{to}/"));
        let out = shown.stdin(Stdio::null()).output().unwrap();
        let _ = std::fs::remove_dir_all(&profile);
        let (page, log) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        let page = page.replace("<wbr>", "");
        let complaints: Vec<&str> = log.lines().filter(|l| l.contains("CONSOLE")).collect();
        assert!(complaints.is_empty(), "{complaints:#?}");
        for name in ["public.by_region", "public.failing", "public.\"&lt;script&gt;\""] {
            assert!(page.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}: {page}");
        }
        assert!(page.contains("division by zero"), "the last error: {page}");
        // The picture is an SVG element and not escaped text.
        let (_, svg) = page.split_once("<svg").expect("a picture");
        let (svg, _) = svg.split_once("</svg>").unwrap();
        assert_eq!(svg.matches("marker-end").count(), 7, "{svg}");
        assert!(svg.contains("failed") && svg.matches("<rect").count() >= 7, "{svg}");
    });
}

/// Whether the server still has this connection open and has sent nothing on it.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let mut byte = [0];
    let is = matches!(stream.peek(&mut byte), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock);
    stream.set_nonblocking(false).unwrap();
    is
}

/// Opens `many` connections, each with half a request, and asserts that other requests are answered. `stay`
/// checks the number of connections that are still open. The function tries again while the check fails,
/// since on a slow machine connections may already be closed.
fn answered_beside(to: SocketAddr, many: usize, stay: impl Fn(usize) -> bool) -> Vec<TcpStream> {
    let late = Instant::now() + PATIENCE;
    loop {
        let mut slow: Vec<TcpStream> = (0..many).map(|_| TcpStream::connect(to).unwrap()).collect();
        for stream in &mut slow {
            // The server may have closed the connection already.
            let _ = stream.write_all(b"GET / HTT");
        }
        assert_eq!((get(to, "/healthz").code, get(to, "/metrics").code), (200, 200));
        if stay(slow.iter().filter(|s| is_open(s)).count()) {
            return slow;
        }
        assert!(Instant::now() < late, "whoever is quick has to wait for {many} that are slow");
    }
}

/// Catches a page server with the long time limits of the refresher. Catches also a page server in which slow
/// clients can occupy all places for connections.
#[test]
fn a_slow_connection_keeps_no_quick_one_waiting() {
    newest_server(async |db| {
        let app = shop(db).await;
        let w = db.session().await;
        let (_refresher, to) = serving(app.command(&["run", "--metrics", "127.0.0.1:0"]));
        above(to, "trickle_connected", 0.0);
        // First the test opens fewer connections than the server has places, so the server closes none for a
        // quick request. Then the test opens more connections, and some of them stay open.
        answered_beside(to, 60, |still_open| still_open == 60);
        let slow = answered_beside(to, 200, |still_open| still_open > 0);
        app.run_sql(db, CHANGE).await;
        until(&w, &holds("by_region", BY_REGION)).await;
        // The server closes each slow connection in the end, even when no other connection needs its place.
        let late = Instant::now() + PATIENCE;
        while slow.iter().any(is_open) {
            assert!(Instant::now() < late, "half a request is waited for");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(get(to, "/healthz").code, 200);
    });
}

/// Catches a page server that reads request heads and bodies of any length.
#[test]
fn a_large_request_is_refused_and_not_read() {
    newest_server(async |db| {
        let app = shop(db).await;
        let (_refresher, to) = serving(app.command(&["run", "--metrics", "127.0.0.1:0"]));
        above(to, "trickle_connected", 0.0);
        let filling = "x".repeat(1 << 20);
        for large in [
            format!("GET /{filling} HTTP/1.1\r\nHost: {to}\r\n\r\n"),
            format!("GET /healthz HTTP/1.1\r\nHost: {to}\r\nNote: {filling}\r\n\r\n"),
            format!("GET /healthz HTTP/1.1\r\nHost: {to}\r\n{}\r\n", "a: b\r\n".repeat(1 << 17)),
        ] {
            let refused = exchange(to, &large);
            assert!(refused.code == 0 || (400..500).contains(&refused.code), "{}", refused.head);
        }
        for length in ["Content-Length: 1000000000", "Transfer-Encoding: chunked"] {
            let head = format!("GET /healthz HTTP/1.1\r\nHost: {to}\r\n{length}\r\n\r\n");
            assert_eq!(exchange(to, &head).code, 413, "{length}");
            // The body is larger than the buffers of the sockets, so it could be sent completely only if the
            // server read it.
            let mut stream = TcpStream::connect(to).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            let chunk = format!("{:x}\r\n{filling}\r\n", filling.len());
            let sent = (0..256).take_while(|_| stream.write_all(chunk.as_bytes()).is_ok()).count();
            assert!(sent < 256, "a body is read: {length}");
        }
        assert_eq!(get(to, "/healthz").code, 200);
    });
}

/// Catches a page that a foreign site can read through its own host name (DNS rebinding). Catches also a
/// server that refuses a request of a permitted proxy.
#[test]
fn a_request_for_a_foreign_host_is_refused() {
    newest_server(async |db| {
        let app = shop(db).await;
        let file = std::env::temp_dir().join(format!("trickle-hosts-{}.toml", app.name));
        std::fs::write(&file, "metrics_hosts = [\"board.example\"]\n").unwrap();
        let config = file.display().to_string();
        let run = ["run", "--metrics", "127.0.0.1:0"];
        let (_plain, plain) = serving(app.command(&run));
        let (_filed, filed) = serving(app.command(&[&run[..], &["--config", &config]].concat()));
        let (_told, told) =
            serving(app.command(&[&run[..], &["--metrics-hosts", "other.example,board.example"]].concat()));
        above(plain, "trickle_connected", 0.0);
        let ask = |to: SocketAddr, path: &str, host: &str| {
            exchange(to, &format!("GET {path} HTTP/1.1\r\n{host}\r\n\r\n"))
        };
        for path in ["/", "/status.json", "/metrics", "/healthz", "/nowhere"] {
            let refused = ask(plain, path, "Host: board.example:9187");
            assert_eq!(refused.code, 421, "{path}");
            let hint = "metrics_hosts = [\"board.example\"]";
            assert!(refused.body.contains(hint) && !refused.body.contains("by_region"), "{}", refused.body);
        }
        for to in [filed, told] {
            assert_eq!(ask(to, "/", "Host: board.example:9187").code, 200);
            assert_eq!(ask(to, "/", "Host: evil.example").code, 421);
        }
        for host in ["Host: localhost", "Host: 127.0.0.1", "Host: [::1]:9187", "Host: 10.0.0.7:80"] {
            assert_eq!(ask(plain, "/status.json", host).code, 200, "{host}");
        }
        for host in ["Accept: */*", "Host: a\r\nHost: b", "Host: "] {
            assert_eq!(ask(plain, "/status.json", host).code, 400, "{host}");
        }
        let wrong = app.trickle(&["run", "--metrics", "127.0.0.1:0", "--metrics-hosts", "http://board"]);
        assert!(wrong.code == 2 && wrong.err.contains("metrics_hosts: \"http://board\""), "{}", wrong.err);
        std::fs::remove_file(&file).unwrap();
    });
}

#[test]
fn a_port_that_is_taken_is_told() {
    newest_server(async |db| {
        let app = shop(db).await;
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let ran: Ran = app.trickle(&["run", "--metrics", &address]);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains(&format!("cannot serve metrics on {address}")), "{}", ran.err);
        assert!(ran.err.contains("hint: "), "{}", ran.err);
    });
}

/// Returns the JSON documents of a log, up to the first one that fulfils `wanted`.
fn until_logged(log: Said<ChildStderr>, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let mut all = Vec::new();
    for line in BufReader::new(log).lines() {
        let line = line.unwrap();
        let document: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
        let found = wanted(&document);
        all.push(document);
        if found {
            return all;
        }
    }
    panic!("it was never logged: {all:?}");
}

#[test]
fn the_json_log_has_a_span_for_each_refresh_and_its_phases() {
    newest_server(async |db| {
        let app = shop(db).await;
        let (_refresher, log) = Refresher::logging(app.command(&["run", "-vv", "--log-format", "json"]));
        app.run_sql(db, CHANGE).await;
        let of = |d: &Value| d["span"]["table"] == "public.by_region" && d["span"]["name"] == "refresh";
        let phase = |d: &Value, name: &str| {
            let span = &d["span"];
            span["name"] == "phase" && span["table"] == "public.by_region" && span["phase"] == name
        };
        let all = until_logged(log, |d| phase(d, "cleanup"));
        let told = all.iter().find(|d| of(d) && d["level"] == "INFO").unwrap();
        assert!(told["fields"]["message"].as_str().unwrap().starts_with("public.by_region: "), "{told}");
        assert!(told["timestamp"].as_str().unwrap().ends_with('Z'), "{told}");
        let span = &told["span"];
        assert!(span["action"].is_string() && span["ms"].is_number() && span["rows"].is_number(), "{span}");
        assert!(span["delta_rows"].as_i64().unwrap() > 0, "{span}");
        for name in ["wait", "decide", "generate", "execute", "cleanup"] {
            let event = all.iter().find(|d| phase(d, name)).unwrap_or_else(|| panic!("{name}: {all:?}"));
            let span = &event["span"];
            assert!(span["ms"].is_number() && span["shared_ms"].is_number(), "{event}");
        }
    });
}

/// A pseudo-terminal in which the program runs.
struct Terminal {
    screen: Arc<Mutex<vt100::Parser>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
    /// The terminal's other end, open as long as this value lives, since a closed terminal would end the
    /// program.
    _line: Box<dyn portable_pty::MasterPty + Send>,
}

impl Terminal {
    fn start(command: &Command) -> Terminal {
        let size = PtySize { rows: 30, cols: 140, ..PtySize::default() };
        let line = native_pty_system().openpty(size).unwrap();
        let mut in_it = CommandBuilder::new(command.get_program());
        in_it.args(command.get_args());
        in_it.cwd(std::env::current_dir().unwrap());
        in_it.env("TERM", "xterm-256color");
        for (name, value) in command.get_envs() {
            in_it.env(name, value.unwrap_or_default());
        }
        let child = line.slave.spawn_command(in_it).unwrap();
        let mut said = line.master.try_clone_reader().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(30, 140, 0)));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = said.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..n]);
            }
        });
        Terminal { screen, keys: line.master.take_writer().unwrap(), child, _line: line.master }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen meets a condition.
    fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let began = Instant::now();
        while !is_so(&self.text()) {
            assert!(began.elapsed() < PATIENCE, "never: {what}\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_terminal_shows_what_changes_and_is_as_it_was_afterwards() {
    newest_server(async |db| {
        let app = shop(db).await;
        let w = db.session().await;
        let mut seen = Terminal::start(&app.command(&["status", "--watch", "--interval", "100ms"]));
        seen.until("all stream tables", |t| ["by_region", "large"].iter().all(|n| t.contains(n)));
        assert!(seen.screen.lock().unwrap().screen().alternate_screen());
        let columns = ["mode", "status", "lag", "last refresh", "rows", "cost", "buffers", "errors"];
        seen.until("all columns", |t| columns.iter().all(|c| t.contains(c)));
        // Whether the screen has a row of `by_region` with all these texts.
        let row = |t: &str, what: &[&str]| {
            t.lines().any(|l| l.contains("by_region") && what.iter().all(|w| l.contains(w)))
        };
        app.run_sql(db, CHANGE).await;
        seen.until("a change that waits", |t| row(t, &["late"]));
        app.does(&["refresh", "by_region", "--quiet"]);
        seen.until("a refresh", |t| row(t, &["fresh", "ago, DIFFERENTIAL", "+0 ~"]));
        // The screen shows changes by other clients without a key press.
        app.does(&["alter", "by_region", "--suspend", "--quiet"]);
        seen.until("one that is suspended", |t| {
            t.lines().any(|l| l.contains("by_region") && l.contains("SUSPENDED"))
        });
        app.does(&["alter", "by_region", "--resume", "--quiet"]);
        seen.until("none that is suspended", |t| !t.contains("SUSPENDED"));
        // The program's connections are terminated, and the program opens new ones.
        let cut = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity \
             WHERE application_name LIKE 'trickle%' AND datname = current_database() AND pid <> pg_backend_pid()";
        count(&w, cut).await;
        app.does(&["drop", "large", "--cascade", "--quiet"]);
        seen.until("one that is dropped", |t| t.contains("by_region") && !t.contains("large"));
        seen.press("q");
        assert_eq!(seen.child.wait().unwrap().exit_code(), 0);
        // The program's last output may reach the screen after the program has ended.
        let began = Instant::now();
        let is_as_before = || {
            let screen = seen.screen.lock().unwrap();
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
        };
        while !is_as_before() {
            assert!(began.elapsed() < PATIENCE, "the terminal is not as it was");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

#[test]
fn watch_without_a_terminal_prints_json_lines_or_is_refused() {
    newest_server(async |db| {
        let app = shop(db).await;
        let refused = app.trickle(&["status", "--watch"]);
        assert_eq!((refused.code, refused.out.as_str()), (2, ""));
        assert!(
            refused.err.contains("needs a terminal") && refused.err.contains("--json"),
            "{}",
            refused.err
        );
        let mut watch = app
            .command(&["status", "--watch", "--json", "--interval", "100ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
        for line in lines.take(2) {
            let document: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_eq!(document["tables"].as_array().unwrap().len(), 4, "{document}");
        }
        // The reading end of the pipe is closed, so the program ends by itself with exit code 0.
        assert_eq!(watch.wait().unwrap().code(), Some(0));
    });
}
