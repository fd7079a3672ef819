//! What the README says of settings and scripts is what they are.

use toolpulse::config::OPTIONS;

const README: &str = include_str!("../README.md");

#[test]
fn the_settings_table_is_complete_and_true() {
    let rows: Vec<(String, String)> = README
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(|cell| cell.trim().trim_matches('`'));
            Some((cells.next()?.to_owned(), cells.next()?.to_owned()))
        })
        .collect();
    for setting in OPTIONS {
        let row = rows.iter().find(|(key, _)| key == setting.key);
        let (_, default) = row.unwrap_or_else(|| panic!("README has no row for {}", setting.key));
        assert_eq!(default, setting.default, "the default of {}", setting.key);
    }
}

#[test]
fn the_python_loop_is_the_one_that_is_tested() {
    let script = include_str!("python/push_checks.py");
    assert!(README.contains(&format!("```python\n{script}```")), "the README shows another script");
    assert!(script.lines().count() <= 15, "short enough to be read");
}
