use super::fake::FakeServer;
use super::*;
use observe::Table;
use proptest::prelude::*;
use serde_json::Value;
use std::net::Ipv4Addr;

const ADDRESS: &str = "127.0.0.1:9798";

/// A proxy with TLS, and a machine that is not a proxy.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

struct Case {
    site: Site,
    key: Key,
    folder: tempfile::TempDir,
}

fn case() -> Case {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let site = Site::new(
        Key::load_or_make(&path).unwrap(),
        SiteSettings { names: vec!["fs1.example.org".into()], tls_proxies: vec![PROXY] },
    );
    site.opened(ADDRESS.parse().unwrap());
    Case { site, key: Key::load(&path).unwrap(), folder }
}

impl Case {
    fn ask(&self, line: &str, headers: &str, body: &str) -> Reply {
        self.ask_from(Ipv4Addr::LOCALHOST.into(), line, headers, body)
    }

    fn ask_from(&self, peer: IpAddr, line: &str, headers: &str, body: &str) -> Reply {
        let head = format!("{line} HTTP/1.1\r\n{headers}\r\n\r\n");
        let mut request = Request::parse(head.as_bytes(), peer).unwrap();
        request.body = body.into();
        self.site.answer(&request)
    }

    fn get(&self, path: &str, headers: &str) -> Reply {
        self.ask(&format!("GET {path}"), &format!("Host: {ADDRESS}\r\n{headers}"), "")
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        let headers = format!("Host: {ADDRESS}\r\nX-Cellar: 1\r\n{headers}");
        self.ask(&format!("POST {path}"), headers.trim_end(), body)
    }

    fn begin(&self) {
        self.site.begin(Arc::new(FakeServer::default()));
    }

    /// Returns the header of a signed-in browser.
    fn signed_in(&self) -> String {
        let reply = self.post("/api/login", "", &self.key.code(now()));
        let cookie = reply.headers.iter().find(|(name, _)| *name == "Set-Cookie").unwrap().1.clone();
        assert!(
            cookie.contains("; HttpOnly; SameSite=Strict") && cookie.starts_with("cellar_9798="),
            "{cookie}"
        );
        format!("Cookie: {}", cookie.split(';').next().unwrap())
    }
}

fn code(reply: &Reply) -> &'static str {
    &reply.status[..3]
}

fn json(reply: &Reply) -> Value {
    serde_json::from_slice(&reply.body).unwrap()
}

#[test]
fn keys_and_codes_are_taken_over_tls_or_from_this_machine() {
    let case = case();
    case.begin();
    let key = std::fs::read_to_string(case.folder.path().join("key")).unwrap();
    let (bearer, session) = (format!("Authorization: Bearer {}", key.trim()), case.signed_in());
    let own: IpAddr = Ipv4Addr::LOCALHOST.into();
    for (peer, proto, is_taken) in [
        (own, "", true),
        (OTHER, "", false),
        // Any client can send this header.
        (OTHER, "X-Forwarded-Proto: https\r\n", false),
        (PROXY, "", false),
        (PROXY, "X-Forwarded-Proto: http\r\n", false),
        (PROXY, "X-Forwarded-Proto: https\r\n", true),
    ] {
        let get = |headers: &str| {
            let headers = format!("Host: {ADDRESS}\r\n{proto}{headers}");
            case.ask_from(peer, "GET /api/slow", &headers, "")
        };
        let headers = format!("Host: {ADDRESS}\r\nX-Cellar: 1\r\n{proto}X-End: 1");
        let login = case.ask_from(peer, "POST /api/login", &headers, &case.key.code(now()));
        let codes = [code(&get(&bearer)), code(&get(&session)), code(&login)];
        assert_eq!(codes, if is_taken { ["200"; 3] } else { ["403", "401", "403"] }, "{peer} {proto}");
        let cookie = login.headers.iter().find(|(name, _)| *name == "Set-Cookie").map(|(_, value)| value);
        assert_eq!(cookie.is_some_and(|cookie| cookie.ends_with("; Secure")), is_taken && peer == PROXY);
    }
}

#[test]
fn a_proxys_clients_are_counted_one_by_one() {
    let case = case();
    let attempt = |client: &str, body: &str| {
        let headers = format!(
            "Host: {ADDRESS}\r\nX-Cellar: 1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 10.0.0.1, {client}"
        );
        code(&case.ask_from(PROXY, "POST /api/login", &headers, body))
    };
    for _ in 0..10 {
        assert_eq!(attempt("198.51.100.1", "guess"), "401");
    }
    assert_eq!(attempt("198.51.100.1", "guess"), "429");
    assert_eq!(attempt("198.51.100.2", &case.key.code(now())), "200");
}

#[test]
fn each_response_has_security_headers() {
    let case = case();
    for path in ["/", "/app.js", "/api/about", "/nothing"] {
        let reply = case.get(path, "");
        let policy = reply.headers.iter().find(|(name, _)| *name == "Content-Security-Policy").unwrap();
        assert!(policy.1.contains("default-src 'none'") && !policy.1.contains("unsafe"), "{path}");
    }
}

#[test]
fn the_page_is_there_before_the_server_is_ready() {
    let case = case();
    assert_eq!((code(&case.get("/", "")), code(&case.get("/api/about", ""))), ("200", "503"));
    case.site.sample();
    case.begin();
    case.site.sample();
    assert_eq!((code(&case.get("/api/about", "")), code(&case.get("/api/history", ""))), ("200", "200"));
    assert_eq!(json(&case.get("/api/about", ""))["signed_in"], false);
}

#[test]
fn usage_requires_a_signed_in_user() {
    let case = case();
    case.begin();
    let signed_in = case.signed_in();
    for table in Table::ALL {
        let path = format!("/api/tables/{}", table.name());
        let is_private = matches!(table.name(), "volumes" | "clients" | "hosts" | "peers");
        let expected = if is_private { "401" } else { "200" };
        assert_eq!(code(&case.get(&path, "")), expected, "{path}");
        assert_eq!(code(&case.get(&path, &signed_in)), "200", "{path}");
    }
    for (path, expected) in [
        ("slow", "200"),
        ("volumes", "200"),
        ("volumes/7", "200"),
        ("volumes/8", "404"),
        ("jobs", "500"),
        ("probes", "500"),
    ] {
        let path = format!("/api/{path}");
        assert_eq!(code(&case.get(&path, "")), "401", "{path}");
        assert_eq!(code(&case.get(&path, "Cookie: cellar_9798=00")), "401", "{path}");
        assert_eq!(code(&case.get(&path, &signed_in)), expected, "{path}");
    }
    assert_eq!(json(&case.get("/api/about", &signed_in))["signed_in"], true);
    assert_eq!(code(&case.post("/api/logout", &signed_in, "")), "200");
    assert_eq!(code(&case.get("/api/slow", &signed_in)), "401");
}

/// The only test of this crate that takes profiles, since a process takes one at a time.
#[test]
fn profiles_require_a_signed_in_user() {
    let case = case();
    case.begin();
    let signed_in = case.signed_in();
    for path in ["/api/profile", "/api/profile/1", "/api/profile/1/stop", "/api/profile/1/svg"] {
        assert_eq!(code(&case.get(path, "")), "401", "{path}");
        assert_eq!(code(&case.post(path, "", "cpu 1")), "401", "{path}");
    }
    for (body, expected) in
        [("", "400"), ("cpu", "400"), ("all 3", "400"), ("cpu 0", "400"), ("waits 601", "400")]
    {
        assert_eq!(code(&case.post("/api/profile", &signed_in, body)), expected, "{body:?}");
    }
    for path in ["", "/7/stop"] {
        assert_eq!(code(&case.get(&format!("/api/profile{path}"), &signed_in)), "405", "{path}");
    }
    for path in ["/7", "/7/svg", "/seven", "/7/svg/x"] {
        assert_eq!(code(&case.get(&format!("/api/profile{path}"), &signed_in)), "404", "{path}");
    }
    assert_eq!(code(&case.post("/api/profile/7/stop", &signed_in, "")), "404");

    let begun = json(&case.post("/api/profile", &signed_in, "waits 600"));
    let path = format!("/api/profile/{}", begun["id"].as_str().unwrap());
    assert_eq!(json(&case.get(&path, &signed_in))["is_done"], false);
    assert_eq!(code(&case.get(&format!("{path}/svg"), &signed_in)), "409");
    assert_eq!(code(&case.post("/api/profile", &signed_in, "cpu 1")), "409", "one at a time");
    assert_eq!(code(&case.post(&format!("{path}/stop"), &signed_in, "")), "200");
    let reported = loop {
        let reported = json(&case.get(&path, &signed_in));
        if reported["is_done"] == true {
            break reported;
        }
        std::thread::yield_now();
    };
    assert_eq!(reported["stacks"], "", "nothing waited: {reported}");
    assert!(reported["locks"].as_str().unwrap().starts_with("lock\tholder"), "{reported}");
    assert_eq!(code(&case.get(&format!("{path}/svg"), &signed_in)), "404", "there is nothing to draw");
}

#[test]
fn a_code_is_good_once_and_guesses_are_counted() {
    let case = case();
    let code_text = case.key.code(now());
    assert_eq!(code(&case.post("/api/login", "", &code_text)), "200");
    assert_eq!(code(&case.post("/api/login", "", &code_text)), "401");
    (0..9).for_each(|_| assert_eq!(code(&case.post("/api/login", "", "guess")), "401"));
    assert_eq!(code(&case.post("/api/login", "", &case.key.code(now()))), "429");
}

#[test]
fn programs_may_send_the_key() {
    let case = case();
    case.begin();
    let text = std::fs::read_to_string(case.folder.path().join("key")).unwrap();
    assert_eq!(code(&case.get("/api/slow", &format!("Authorization: Bearer {}", text.trim()))), "200");
    (0..10).for_each(|_| assert_eq!(code(&case.get("/api/slow", "Authorization: Bearer 00")), "401"));
    assert_eq!(code(&case.get("/api/slow", "Authorization: Bearer 00")), "429");
}

#[test]
fn other_pages_cannot_ask() {
    let case = case();
    case.begin();
    for (host, expected) in [
        ("127.0.0.1:9798", "200"),
        ("[::1]:9798", "200"),
        ("localhost", "200"),
        ("FS1.example.org:9798", "200"),
        ("evil.example", "421"),
        ("evil.example:9798", "421"),
        ("", "421"),
    ] {
        assert_eq!(code(&case.ask("GET /api/about", &format!("Host: {host}"), "")), expected, "{host}");
    }
    let fresh = || case.key.code(now());
    let login = |headers: &str| case.ask("POST /api/login", &format!("Host: {ADDRESS}{headers}"), &fresh());
    assert_eq!(code(&login("")), "403");
    assert_eq!(code(&login("\r\nX-Cellar: 1\r\nOrigin: http://evil.example")), "403");
    assert_eq!(code(&login("\r\nX-Cellar: 1\r\nOrigin: http://127.0.0.1:9798")), "200");
    assert_eq!(code(&case.get("/api/login", "")), "405");
    assert_eq!(code(&case.post("/api/tables/calls", "", "")), "405");
    assert_eq!(code(&case.post("/", "", "")), "405");
}

#[test]
fn tables_return_declarations_and_rows() {
    let case = case();
    case.begin();
    let about = json(&case.get("/api/about", ""));
    let calls = &about["tables"][0];
    assert_eq!((&calls["name"], &calls["labels"][1]), (&Value::from("calls"), &Value::from("procedure")));
    let named = calls["figures"].as_array().unwrap().iter().find(|figure| figure["name"] == "run").unwrap();
    assert_eq!((&named["kind"], &named["unit"]), (&Value::from("histogram"), &Value::from("ns")));
    for table in about["tables"].as_array().unwrap().iter().filter(|table| table["private"] == false) {
        let rows = json(&case.get(&format!("/api/tables/{}", table["name"].as_str().unwrap()), ""));
        for row in rows["rows"].as_array().unwrap() {
            let count = |value: &Value| value.as_array().unwrap().len();
            assert_eq!(count(&row[0]), count(&table["labels"]), "{table}");
            assert_eq!(count(&row[1]), count(&table["figures"]), "{table}");
        }
    }
}

#[test]
fn only_nodes_show_the_tables_of_a_cluster() {
    for is_node in [false, true] {
        let case = case();
        case.site.begin(Arc::new(FakeServer::node(is_node)));
        let about = json(&case.get("/api/about", ""));
        let tables = about["tables"].as_array().unwrap();
        let named = |name: &str| tables.iter().find(|table| table["name"] == name);
        for name in ["cluster", "nodes", "takeovers"] {
            assert_eq!(named(name).is_some(), is_node, "{name}");
        }
        assert!(named("calls").is_some());
        let rows = json(&case.get("/api/tables/takeovers", ""))["rows"].as_array().unwrap().len();
        assert_eq!(rows, usize::from(is_node));
    }
}

proptest! {
    #[test]
    fn any_path_is_answered(path in "[!-~]{0,40}", cookie in "[!-~]{0,40}") {
        let case = case();
        case.begin();
        let reply = case.get(&format!("/api/{}", path.replace(' ', "")), &format!("Cookie: cellar_9798={cookie}"));
        prop_assert!(matches!(code(&reply), "200" | "401" | "404"));
    }
}
