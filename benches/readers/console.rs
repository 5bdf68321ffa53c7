//! People at the operators' console: sessions that are opened as theirs are, by a link.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use serde_json::Value;

use crate::fleet::{Proxy, WEIR};

/// What people look at, in turn.
pub(crate) const PAGES: [&str; 6] = ["/", "/accounts", "/keys", "/usage", "/log", "/providers"];

/// The cookies of so many people, each of an address of their own.
pub(crate) fn sessions(proxy: &Proxy, count: u32) -> Result<Vec<String>, String> {
    (0..count).map(|number| session(proxy, number)).collect()
}

fn session(proxy: &Proxy, number: u32) -> Result<String, String> {
    let admin = format!("unix:{}", proxy.home.join("admin.sock").display());
    let opened = Command::new(WEIR)
        .args(["console", "open", "--json", "--admin", &admin])
        .output();
    let opened = opened.map_err(|error| error.to_string())?;
    let link: Value = serde_json::from_slice(&opened.stdout).map_err(|error| format!("a link: {error}"))?;
    let url = link.get("url").and_then(Value::as_str).unwrap_or_default();
    let (_, code) = url.split_once("/open?code=").ok_or("a link without a code")?;
    let body = format!("code={code}");
    let request = format!(
        "POST /open HTTP/1.1\r\nhost: gateway.test\r\norigin: http://gateway.test\r\nx-forwarded-for: 10.8.0.{number}\r\n\
         content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = exchange(proxy, &request).map_err(|error| format!("the console: {error}"))?;
    let set = answer.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = set.and_then(|set| set.split(';').next());
    let first = answer.lines().next().unwrap_or_default();
    cookie
        .map(str::to_owned)
        .ok_or_else(|| format!("the console opens no session: {first}"))
}

fn exchange(proxy: &Proxy, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(proxy.console)?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.replace("Set-Cookie: ", "set-cookie: "))
}
