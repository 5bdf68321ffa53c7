//! Tests of `compile`.

use super::*;
use crate::domain::{
    rules::{
        ErrorShape,
        raw::{ClientGoneAction, OnClientGone},
        shipped,
    },
    wire::operation::Operation,
};

const HEAD: &str =
    "name = \"p\"\n[auth]\nsecret = \"env:X\"\nstyle = \"bearer\"\n[endpoints]\nmessages = \"https://h/m\"\n";

fn compiled(text: &str) -> Result<CompiledProvider, Vec<FileError>> {
    compile(&RuleFile {
        name: "p.toml".to_owned(),
        text: text.to_owned(),
    })
}

fn refused(tail: &str) -> String {
    let errors = compiled(&format!("{HEAD}{tail}")).unwrap_err();
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_may_reason_out_of_sight_is_read_to_its_end_unless_the_file_says_otherwise() {
    use ClientGoneAction::{Abort, Finish};
    let policy = |tail: &str| compiled(&format!("{HEAD}{tail}")).unwrap().provider.on_client_gone;
    let all = |policy: OnClientGone| {
        [(true, false), (true, true), (false, false), (false, true)]
            .map(|(stream, hidden)| policy.action(stream, hidden))
    };
    assert_eq!(all(policy("")), [Abort, Finish, Finish, Finish]);
    let told = policy("[on_client_gone]\nstream = \"abort\"\n");
    assert_eq!(all(told), [Abort, Abort, Finish, Finish]);
    let told = policy("[on_client_gone]\nstream = \"finish\"\nunary = \"abort\"\n");
    assert_eq!(all(told), [Finish, Finish, Abort, Abort]);
}

#[test]
fn a_websocket_is_a_property_of_the_responses_endpoint() {
    let text = |responses: &str| HEAD.replacen("messages = \"https://h/m\"", responses, 1);
    let has_websocket = |responses: &str| {
        let endpoints = compiled(&text(responses)).unwrap().provider.endpoints;
        assert_eq!(endpoints.get(Operation::Responses).unwrap().fill("m"), "/r");
        [Operation::Responses, Operation::Messages].map(|operation| endpoints.has_websocket(operation))
    };
    assert_eq!(has_websocket("responses = \"https://h/r\""), [false, false]);
    assert_eq!(
        has_websocket("[endpoints.responses]\nurl = \"https://h/r\""),
        [false, false]
    );
    let table = "messages = \"https://h/m\"\nresponses = { url = \"https://h/r\", websocket = true }";
    assert_eq!(has_websocket(table), [true, false]);
    for (responses, error) in [
        ("responses = 1", "a URL or a table with `url` and `websocket`"),
        ("responses = { websocket = true }", "key `url` is missing"),
        (
            "responses = { url = \"https://h/r\", websockets = true }",
            "did you mean `websocket`?",
        ),
        (
            "responses = { url = \"h\", websocket = true }",
            "p.toml:6: key `endpoints.responses`",
        ),
    ] {
        let errors = compiled(&text(responses)).unwrap_err();
        assert!(
            errors.iter().any(|found| found.to_string().contains(error)),
            "{errors:?}"
        );
    }
}

#[test]
fn hidden_reasoning_is_a_property_of_each_model() {
    let models = "[[model]]\nname = \"a\"\nhidden_reasoning = true\n[[model]]\nname = \"b\"\n";
    let models = compiled(&format!("{HEAD}{models}")).unwrap().models;
    let hidden: Vec<bool> = models.iter().map(|(_, model)| model.hidden_reasoning).collect();
    assert_eq!(hidden, [true, false]);
    let wrong = refused("[[model]]\nname = \"a\"\nhidden_reasoning = \"yes\"\n");
    assert!(wrong.contains("expected a boolean"), "{wrong}");
}

#[test]
fn a_provider_is_stateless_only_if_its_file_says_so() {
    let told = |line: &str| compiled(&HEAD.replacen("name", &format!("{line}\nname"), 1)).unwrap();
    assert!(!told("").provider.stateless);
    assert!(told("stateless = true").provider.stateless);
    let of_responses: Vec<(String, bool)> = shipped()
        .iter()
        .map(|file| compile(file).unwrap().provider)
        .filter(|provider| provider.endpoints.get(Operation::Responses).is_some())
        .map(|provider| (provider.name, provider.stateless))
        .collect();
    assert_eq!(
        of_responses,
        [("deepseek".to_owned(), true), ("openai".to_owned(), false)]
    );
}

#[test]
fn a_small_file_gets_the_defaults() {
    let provider = compiled(HEAD).unwrap().provider;
    assert_eq!((provider.name.as_str(), provider.display_name.as_str()), ("p", "p"));
    assert_eq!(provider.errors, ErrorShape::Native);
    assert_eq!(provider.on_client_gone, OnClientGone::default());
    assert_eq!(provider.timeouts, ProviderTimeouts::default());
    assert!(provider.body.is_empty() && !provider.is_on());
    assert_eq!(provider.protocols(), [Protocol::Messages]);
}

#[test]
fn unknown_keys_name_line_and_nearest() {
    assert_eq!(
        refused("[headers]\nremvoe = []\n"),
        "p.toml:8: key `remvoe` is unknown, did you mean `remove`?"
    );
    assert_eq!(
        refused("[[body]]\nop = \"remove\"\npth = \"x\"\n"),
        "p.toml:9: key `pth` is unknown, did you mean `path`?"
    );
    assert_eq!(
        refused("[[body]]\nop = \"remov\"\npath = \"x\"\n"),
        "p.toml:8: key `op`: value `remov` is unknown, did you mean `remove`?"
    );
    assert_eq!(
        refused("[[model]]\nmane = \"x\"\n"),
        "p.toml:8: key `mane` is unknown, did you mean `name`?"
    );
    assert_eq!(
        refused("[timeouts]\nidle_second = 3\n"),
        "p.toml:8: key `idle_second` is unknown, did you mean `idle_seconds`?"
    );
}

#[test]
fn a_secret_in_the_place_of_its_reference_is_not_echoed() {
    let errors = compiled(&HEAD.replace("env:X", "sk-live-12345")).unwrap_err();
    let text = format!("{errors:?} {}", errors[0]);
    assert!(!text.contains("12345"), "{text}");
    assert!(text.contains("env:NAME") && errors[0].line == Some(3), "{text}");
}

#[test]
fn headers_of_framing_and_credentials_cannot_be_edited() {
    for (edit, what) in [
        ("remove = [\"Host\"]", "`host` is set by weir"),
        ("set = { content-length = \"3\" }", "`content-length` is set by weir"),
        (
            "default = { transfer-encoding = \"chunked\" }",
            "`transfer-encoding` is set by weir",
        ),
        ("rename = { x = \"connection\" }", "`connection` is set by weir"),
        ("rename = { x-api-key = \"y\" }", "`x-api-key` carries a credential"),
        (
            "set = { Authorization = \"Bearer x\" }",
            "`authorization` carries a credential",
        ),
        ("remove = [\"a b\"]", "expected the name of an HTTP header"),
        ("set = { x = \"a\\nb\" }", "expected the value of an HTTP header"),
    ] {
        let error = refused(&format!("[headers]\n{edit}\n"));
        assert!(
            error.starts_with("p.toml:8: ") && error.contains(what),
            "{edit}: {error}"
        );
    }
    let own = HEAD.replace("style = \"bearer\"", "header = \"x-own\"");
    let errors = compiled(&format!("{own}[headers]\nset = {{ X-Own = \"1\" }}\n")).unwrap_err();
    assert!(errors[0].message.contains("`x-own` carries a credential"), "{errors:?}");
}

#[test]
fn each_body_op_takes_its_own_keys_only() {
    for (edit, what) in [
        ("op = \"set\"\npath = \"a\"", "`value` is missing"),
        (
            "op = \"set\"\npath = \"a\"\nvalue = 1\nto = \"b\"",
            "`to` does not belong",
        ),
        ("op = \"set\"\npath = \"a\"\nvalue = nan", "cannot be written as JSON"),
        (
            "op = \"set\"\npath = \"a\"\nvalue = 2026-01-01",
            "cannot be written as JSON",
        ),
        ("op = \"remove\"\npath = \"a\"\nvalue = 1", "`value` does not belong"),
        ("op = \"rename\"\npath = \"a\"", "`to` is missing"),
        (
            "op = \"rename\"\npath = \"a\"\nto = \"model\"",
            "`model` cannot be edited",
        ),
        ("op = \"clamp\"\npath = \"a\"", "`min` and `max` are missing"),
        ("op = \"clamp\"\npath = \"a\"\nmin = 2\nmax = 1", "greater than"),
        ("op = \"clamp\"\npath = \"a\"\nmax = \"1\"", "must be numbers"),
        ("op = \"clamp\"\npath = \"a\"\nmax = inf", "cannot be written as JSON"),
        ("op = \"map\"\npath = \"a\"", "`values` is missing"),
        ("op = \"remove\"\npath = \"\"", "member names"),
        ("op = \"remove\"\npath = \"a..b\"", "member names"),
        ("op = \"remove\"\npath = \"a[0].b\"", "member names"),
        ("op = \"remove\"\npath = \"[].b\"", "member names"),
        ("op = \"remove\"\npath = \"a[\"", "member names"),
        ("op = \"remove\"\npath = \"a[]b\"", "member names"),
        ("op = \"remove\"\npath = \"a.b.c.d.e[].f.g.h.i[].j.k\"", "at most 12"),
        ("op = \"rename\"\npath = \"a[]\"\nto = \"b\"", "has no name"),
        ("op = \"remove\"\npath = \"model[].x\"", "`model` cannot be edited"),
        ("op = \"map\"\npath = \"a\"\nvalues = [\"b\"]", "a table of strings"),
        (
            "op = \"map\"\npath = \"a\"\nvalues = { a = 1 }",
            "replacements must be strings",
        ),
        (
            "op = \"clamp\"\npath = \"a\"\nmax = 1\nmessage = \"x\"",
            "`message` does not belong",
        ),
        ("op = \"refuse\"\npath = \"a\"", "key `message`"),
        (
            "op = \"refuse\"\npath = \"a\"\nmessage = \"x\"\nvalues = { a = \"b\" }",
            "takes a list",
        ),
        (
            "op = \"refuse\"\npath = \"a\"\nmessage = \"x\"\nvalues = [\"a\"]\nmin = 1",
            "either `values` or",
        ),
        (
            "op = \"refuse\"\npath = \"stream\"\nmessage = \"x\"",
            "`stream` cannot be edited",
        ),
        ("op = \"remove\"\npath = \"stream\"", "`stream` cannot be edited"),
        ("op = \"remove\"\npath = \"a\"\nprotocols = []", "empty list"),
    ] {
        let error = refused(&format!("[[body]]\n{edit}\n"));
        assert!(error.contains(what), "{edit}: {error}");
    }
}

#[test]
fn a_condition_tests_one_thing() {
    for (when, what) in [
        ("{}", "exactly one of"),
        ("{ model = \"a\", field = \"b\", present = true }", "exactly one of"),
        ("{ model = \"\" }", "`when.model` is empty"),
        ("{ model = \"a\", value = \"b\" }", "`when.value` does not belong"),
        ("{ header = \"a\", equals = \"b\" }", "`when.equals` does not belong"),
        ("{ header = \"a b\" }", "expected the name of an HTTP header"),
        ("{ header = \"Authorization\" }", "carries a credential"),
        (
            "{ header = \"a\", value = \"b\", contains = \"b\" }",
            "either `value` or `contains`",
        ),
        ("{ field = \"a\" }", "needs one of"),
        ("{ field = \"a\", in = [] }", "needs one of"),
        ("{ field = \"a\", equals = 1, present = true }", "needs one of"),
        ("{ field = \"a\", starts_with = \"\" }", "needs one of"),
        ("{ field = \"a\", starts_with = \"b\", equals = \"b\" }", "needs one of"),
        (
            "{ root_field = \"a\", starts_with = \"b\", in = [\"b\"] }",
            "needs one of",
        ),
        ("{ field = \"a\", starts_with = \"b\", present = true }", "needs one of"),
        ("{ field = \"a\", starts_with = 1 }", "expected a string"),
        (
            "{ field = \"a\", starts_with = \"b\", contains = \"c\" }",
            "`when.contains` does not belong",
        ),
        (
            "{ model = \"a\", starts_with = \"b\" }",
            "`when.starts_with` does not belong",
        ),
        (
            "{ header = \"a\", starts_with = \"b\" }",
            "`when.starts_with` does not belong",
        ),
        (
            "{ translated = true, starts_with = \"b\" }",
            "`when.starts_with` does not belong",
        ),
        ("{ starts_with = \"b\" }", "exactly one of"),
        ("{ field = \"a[].b\", equals = 1 }", "without `[]`"),
        ("{ root_field = \"\", equals = 1 }", "member names"),
        ("{ root_field = \"a\", equals = [1] }", "compared with"),
        (
            "{ root_field = \"a\", contains = \"b\" }",
            "`when.contains` does not belong",
        ),
        ("[{ model = \"a\" }, { field = \"a\" }]", "needs one of"),
        ("3", "a table `{ .. }` or a list of tables"),
        ("{ fild = \"a\" }", "did you mean `field`?"),
    ] {
        let error = refused(&format!("[[body]]\nop = \"remove\"\npath = \"a\"\nwhen = {when}\n"));
        assert!(error.contains(what), "{when}: {error}");
    }
}

#[test]
fn a_wrong_condition_is_reported_with_its_line() {
    let when = "[\n  { field = \"b\", present = true },\n  { field = \"c\", starts_with = \"\" },\n]";
    assert_eq!(
        refused(&format!("[[body]]\nop = \"remove\"\npath = \"a[]\"\nwhen = {when}\n")),
        "p.toml:8: key `when`: a field needs one of `equals = ..`, `in = [..]`, `starts_with = ..` and `present = ..`"
    );
}

#[test]
fn answers_are_edited_but_not_refused() {
    let response = |edit: &str| compiled(&format!("{HEAD}[[response]]\n{edit}\n"));
    assert!(
        !response("op = \"set\"\npath = \"model\"\nvalue = \"m\"")
            .unwrap()
            .provider
            .response
            .is_empty()
    );
    let error = refused("[[response]]\nop = \"refuse\"\npath = \"a\"\nmessage = \"x\"\n");
    assert!(error.contains("an answer cannot be refused"), "{error}");
}

#[test]
fn all_faults_are_reported_at_once() {
    let errors = refused("count_tokens = \"h/x\"\nresponses = \"https://h/{m}\"\n[timeouts]\nidle_seconds = 0\n");
    assert_eq!(errors.lines().count(), 3, "{errors}");
    assert!(errors.contains("p.toml:7: key `endpoints.count_tokens`"), "{errors}");
}

#[test]
fn the_way_to_authenticate_is_one() {
    let with = |way: &str| compiled(&HEAD.replace("style = \"bearer\"", way));
    assert!(with("header = \"api-key\"").is_ok());
    for wrong in [
        "",
        "style = \"bearer\"\nheader = \"x\"",
        "header = \"host\"",
        "header = \"a b\"",
        "style = \"basic\"",
    ] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_secret_that_no_header_can_carry_or_no_mask_can_hide_is_refused() {
    let mut one = compiled(HEAD).unwrap();
    for secret in [
        "key-1 of a provider",
        "key-1-of-a-provider\n",
        "key-1-of-ünder",
        "",
        "x",
        "event",
        "key-1-of-a-",
    ] {
        let refused = one.authorize(&one.secrets[0].clone(), Secret::new(secret)).unwrap_err();
        assert!(!refused.contains("key-1"), "{refused}");
        assert!(
            secret.len() >= 12 || refused.contains("fewer than 12 characters"),
            "{refused}"
        );
    }
    assert!(!one.provider.is_on());
    one.authorize(&one.secrets[0].clone(), Secret::new("key-1-of-a-p"))
        .unwrap();
    assert!(one.provider.is_on());
    let auth = &one.provider.auth;
    assert_eq!((auth.header.as_str(), auth.scheme), ("authorization", "Bearer "));
    assert!(!format!("{:?}", one.provider).contains("key-1"));
}

#[test]
fn a_files_models_name_no_providers() {
    let error = refused("[[model]]\nname = \"m\"\nproviders = [\"p\"]\n");
    assert!(error.contains("belongs in weir.toml"), "{error}");
}

#[test]
fn an_error_rule_says_which_error_it_means() {
    let rule = |marks: &str| format!("[[error]]\nstatus = 403\n{marks}\nmeans = \"request_refused\"\n");
    for (marks, what) in [
        ("", "add `code`, `message` or `contains`"),
        ("code = \"\"", "key `code` is empty or only"),
        ("message = \"**\"", "key `message` is empty or only"),
        ("contains = \"\"", "key `contains` is empty or only"),
        ("reason = \"x\"", "key `reason` is unknown"),
    ] {
        let error = refused(&rule(marks));
        assert!(error.contains(what), "{marks}: {error}");
    }
    let refused_status = refused("[[error]]\nstatus = 200\ncode = \"x\"\nmeans = \"request_refused\"\n");
    assert!(refused_status.contains("expected 400 to 599"), "{refused_status}");
    let one = compiled(&format!(
        "{HEAD}{}",
        rule("code = \"a\"\nmessage = \"b*\"\ncontains = \"c\"")
    ))
    .unwrap();
    assert!(one.provider.error_rules.needs_body(403) && !one.provider.error_rules.needs_body(400));
}
