//! Who may use the queue: its certificate, and the tokens of its clients.

use std::path::Path;

use gpuvitals_core::causes;
use gpuvitals_queue::link::Token;
use gpuvitals_queue::server::{Tokens, tls_config};

use crate::config::Broker;
use crate::failure::{Exit, Failure};

/// Most tokens of a file.
const TOKENS_MAX: usize = 64;

/// What a client must bring.
#[derive(Debug, Default)]
pub(super) struct Access {
    /// Certificate and what goes with it; none: unencrypted.
    pub tls: Option<std::sync::Arc<rustls::ServerConfig>>,
    /// Whether a client must show a certificate.
    pub certificate: bool,
    /// Who may do what; none: everybody everything.
    pub tokens: Option<Tokens>,
}

impl Access {
    /// Reads the files that the settings name.
    ///
    /// # Errors
    /// When a file cannot be read, is not what it should be, or can be read by others though it holds a secret.
    pub(super) fn load(settings: &Broker) -> Result<Self, Failure> {
        let files = settings.tls();
        if let Some(files) = &files {
            crate::secret::warn_of_key(&files.key);
        }
        let tls = files.as_ref().map(tls_config).transpose().map_err(|error| {
            Failure::new(Exit::Config, format!("configuration: broker.tls_cert: {}", causes(&error)))
        })?;
        let tokens = settings.token_file().map(read);
        let certificate = files.is_some_and(|files| files.client_ca.is_some());
        Ok(Self { tls, certificate, tokens: tokens.transpose()? })
    }

    /// Says what is open to whom on an address beyond this machine.
    pub(super) fn warn(&self, address: std::net::SocketAddr) {
        if address.ip().is_loopback() {
            return;
        }
        if self.tokens.is_none() && !self.certificate {
            tracing::warn!(
                %address,
                "everyone who reaches this address can publish, read and throw away everything; see broker.token_file and broker.tls_client_ca"
            );
        } else if self.tls.is_none() {
            tracing::warn!(%address, "tokens and messages go over the network in the clear; see broker.tls_cert");
        }
    }
}

/// Reads the tokens anew, for every request from now on; a stream that was let in goes on. When they cannot be read, the old
/// ones stay.
pub(super) fn renew(tokens: Option<&Tokens>, settings: &Broker) {
    let (Some(tokens), Some(path)) = (tokens, settings.token_file()) else {
        tracing::info!(
            "there is nothing to read anew: broker.token_file names no file; other settings take a restart"
        );
        return;
    };
    let file = path.display();
    match read(path) {
        Ok(new) => {
            tokens.renew(new);
            tracing::info!(%file, "the tokens were read anew; other settings and certificates take a restart");
        }
        Err(failure) => {
            tracing::error!(reason = %failure, "the tokens were not read anew; the old ones stay in force");
        }
    }
}

fn read(path: &Path) -> Result<Tokens, Failure> {
    let text = crate::secret::read(path, "broker.token_file")?;
    parse(&text).map_err(|wrong| {
        let text = format!("configuration: broker.token_file: {}: {wrong}", path.display());
        Failure::new(Exit::Config, text)
    })
}

/// Lines of a token for everything, or of what a token is for and the token: `publish,subscribe TOKEN`. Empty lines and
/// those that begin with `#` are none. Errors never hold what a line says.
fn parse(text: &str) -> Result<Tokens, String> {
    let mut tokens = Tokens::default();
    let mut count = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (rights, token) = match *words.as_slice() {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [token] => ("publish,subscribe,administer", token),
            [rights, token] => (rights, token),
            _ => return Err(format!("line {number} has more than two words; it is TOKEN, or RIGHTS TOKEN")),
        };
        if !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!("line {number}: a token is one word of ASCII characters"));
        }
        let token = Token::new(token);
        for right in rights.split(',') {
            let list = match right {
                "publish" => &mut tokens.publish,
                "subscribe" => &mut tokens.subscribe,
                "administer" => &mut tokens.administer,
                _ => return Err(format!("line {number}: rights are publish, subscribe and administer")),
            };
            list.push(token.clone());
        }
        count += 1;
    }
    match count {
        0 => Err("there is no token in it".to_owned()),
        1..=TOKENS_MAX => Ok(tokens),
        more => Err(format!("{more} tokens; {TOKENS_MAX} are the most")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token_or_what_it_is_for_and_a_token() {
        let tokens = parse("# comment\n\nall\n publish,subscribe both \nadminister a\n").unwrap();
        let words = |list: &[Token]| list.iter().map(|t| t.expose().to_owned()).collect::<Vec<_>>();
        assert_eq!(words(&tokens.publish), ["all", "both"]);
        assert_eq!(words(&tokens.subscribe), ["all", "both"]);
        assert_eq!(words(&tokens.administer), ["all", "a"]);
        for (text, words) in [
            ("", "no token"),
            ("# secret\n", "no token"),
            ("publsh secret", "line 1: rights"),
            ("x\npublish secret more", "line 2 has more"),
            ("s\u{e9}cret", "line 1: a token"),
        ] {
            let wrong = parse(text).unwrap_err();
            assert!(wrong.contains(words) && !wrong.contains("secret"), "{wrong}");
        }
        assert!(parse(&"x\n".repeat(65)).unwrap_err().contains("64 are the most"));
    }
}
