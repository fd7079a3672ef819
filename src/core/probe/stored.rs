//! Probes as earlier builds stored them.

use serde::Deserialize;

use super::{Header, HttpUrl, Method, Tls};

/// An HTTP probe of any age: `head` and `server_name` became `method` and `tls`.
#[derive(Debug, Deserialize)]
pub(super) struct HttpProbe {
    url: HttpUrl,
    #[serde(default)]
    head: bool,
    method: Option<Method>,
    #[serde(default)]
    headers: Vec<Header>,
    expected_statuses: Vec<u16>,
    no_statuses: Vec<u16>,
    server_name: Option<String>,
    tls: Option<Tls>,
}

impl From<HttpProbe> for super::HttpProbe {
    fn from(stored: HttpProbe) -> Self {
        let HttpProbe { url, head, method, headers, expected_statuses, no_statuses, server_name, tls } =
            stored;
        let named = server_name.map(|name| Tls { server_name: Some(name), ..Tls::default() });
        Self {
            url,
            method: method.unwrap_or(if head { Method::Head } else { Method::Get }),
            headers,
            expected_statuses,
            no_statuses,
            tls: tls.or(named),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::core::probe::{HttpProbe, Method};

    #[test]
    fn what_an_earlier_build_stored_is_read() {
        let stored = r#"{"url":{"text":"https://h/x","https":true,"endpoint":{"host":"h","port":443},
            "path_and_query":"/x"},"head":true,"expected_statuses":[404],"no_statuses":[],"server_name":"n"}"#;
        let probe: HttpProbe = serde_json::from_str(stored).unwrap();
        assert_eq!(probe.method, Method::Head);
        assert_eq!(probe.expected_statuses, [404]);
        assert_eq!(probe.tls.as_ref().unwrap().server_name.as_deref(), Some("n"));
        let again: HttpProbe = serde_json::from_str(&serde_json::to_string(&probe).unwrap()).unwrap();
        assert_eq!(again, probe);
    }
}
