//! Messages of failed requests.
//!
//! `object_store` describes each attempt with its duration and settings, and servers answer with XML that has the number of the
//! request. What an administrator needs is the request, and what became of it.

/// Addresses at which `object_store` asks for a key, when it was given none: the metadata services of machines and containers.
const KEY_SERVICES: [&str; 2] = ["http://169.254.169.254/", "http://169.254.170.2/"];

/// The explanation for the administrator.
const NO_KEY: &str = "there is no key for the bucket: no file with credentials is named, AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY are not set, and the machine's metadata service gives none";

/// How `object_store` introduces a request.
const REQUEST: &str = "Error performing ";

/// Phrases that add nothing to the causes after them.
const EMPTY: [&str; 2] = ["HTTP error: ", "Server returned non-2xx status code: "];

/// Returns the text of an error in words that are the same each time it happens.
pub(super) fn plain(text: &str) -> String {
    let text = EMPTY.iter().fold(without_attempts(text), |text, words| text.replace(words, ""));
    let text = with_answer(&text);
    if KEY_SERVICES.iter().any(|service| text.contains(service)) { format!("{NO_KEY}: {text}") } else { text }
}

/// Leaves out how long requests took and how often they were sent: `Error performing GET URL in 2ms, after 2 retries, ...  - WHY`
/// becomes `GET URL: WHY`.
fn without_attempts(text: &str) -> String {
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some((before, request)) = rest.split_once(REQUEST) {
        shown += before;
        let attempt =
            request.split_once(" in ").and_then(|(what, after)| Some((what, after.split_once(" - ")?.1)));
        (shown, rest) = match attempt {
            Some((what, why)) if !what.contains(REQUEST) => (shown + what + ": ", why),
            _ => (shown, request),
        };
    }
    shown + rest
}

/// Replaces the description of a failure in XML by its code and message.
fn with_answer(text: &str) -> String {
    let begin = text.find("<?xml").or_else(|| text.find("<Error>"));
    let Some((before, answer)) = begin.map(|at| text.split_at(at)) else { return text.to_owned() };
    let (Some(code), message) = (element(answer, "Code"), element(answer, "Message")) else {
        return text.to_owned();
    };
    let message = message.filter(|message| !message.is_empty()).map(|message| format!(" ({message})"));
    let after = answer.split_once("</Error>").map_or("", |(_, after)| after);
    format!("{before}{code}{}{after}", message.unwrap_or_default())
}

fn element<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = answer.split_once(&format!("<{name}>"))?;
    Some(after.split_once(&format!("</{name}>"))?.0.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_the_same_words_each_time() {
        for (text, expected) in [
            (
                "Error performing GET http://s/b/cluster in 222.438765ms, after 2 retries, max_retries: 2, retry_timeout: 180s  - \
                 HTTP error: error sending request: client error (Connect): tcp connect error: Connection refused (os error 111)",
                "GET http://s/b/cluster: error sending request: client error (Connect): tcp connect error: Connection refused (os \
                 error 111)",
            ),
            (
                "Error performing list request: Error performing GET http://s/b?list-type=2 in 1s - Server returned non-2xx status \
                 code: 500 Internal Server Error: <?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code><Message>Try \
                 again.</Message><RequestId>7</RequestId></Error>",
                "list request: GET http://s/b?list-type=2: 500 Internal Server Error: InternalError (Try again.)",
            ),
            (
                "Error performing GET x in 1ms - 403: <Error><Code>A</Code></Error>: more",
                "GET x: 403: A: more",
            ),
            ("Error performing magic", "magic"),
            ("<?xml version=\"1.0\"?><html>no code</html>", "<?xml version=\"1.0\"?><html>no code</html>"),
            ("<Error><Code>", "<Error><Code>"),
            ("an error in parts - of two", "an error in parts - of two"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn a_missing_key_is_named() {
        let text =
            "Error performing PUT http://169.254.169.254/latest/api/token in 2ms - HTTP error: unreachable";
        let shown = plain(text);
        assert!(shown.starts_with("there is no key for the bucket"), "{shown}");
        assert!(shown.ends_with(": PUT http://169.254.169.254/latest/api/token: unreachable"), "{shown}");
    }
}
