//! rows.rs - read the rows of the library's tables (src/rules/*.def) as data.
//!
//! Owns:     the grammar of a row: NAME(argument, ...), with C comments, numbers and strings.
//! Used by:  tables/main.rs, and the crate's unit tests.
//! Rejected: asking the C preprocessor: packagers build the tool without a C compiler at hand.

/// One row: the macro's name and its arguments, as written.
#[derive(Debug, PartialEq)]
pub struct Row {
    pub macro_name: String,
    pub arguments: Vec<Argument>,
}

#[derive(Debug, PartialEq)]
pub enum Argument {
    Word(String),
    Number(u64),
    Text(String),
}

impl Argument {
    pub fn word(&self) -> Result<&str, String> {
        match self {
            Argument::Word(word) => Ok(word),
            other => Err(format!("{other:?} stands where a name belongs")),
        }
    }

    pub fn number(&self) -> Result<u64, String> {
        match self {
            Argument::Number(number) => Ok(*number),
            other => Err(format!("{other:?} stands where a number belongs")),
        }
    }

    pub fn text(&self) -> Result<&str, String> {
        match self {
            Argument::Text(text) => Ok(text),
            other => Err(format!("{other:?} stands where a text belongs")),
        }
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Number(u64),
    Text(String),
    Mark(char),
}

/// All rows of a table, in order. Whatever is no row of macros is an error: a row that is silently
/// skipped would be an option that the tool does not know.
pub fn rows_parse(source: &str) -> Result<Vec<Row>, String> {
    let mut tokens = tokens_read(source)?.into_iter().peekable();
    let mut rows = Vec::new();
    while let Some(token) = tokens.next() {
        let Token::Word(macro_name) = token else {
            return Err(format!("{token:?} stands where a row should begin"));
        };
        if tokens.next() != Some(Token::Mark('(')) {
            return Err(format!("no '(' after {macro_name}"));
        }
        let mut arguments = Vec::new();
        loop {
            arguments.push(match tokens.next() {
                Some(Token::Word(word)) => Argument::Word(word),
                Some(Token::Number(number)) => Argument::Number(number),
                Some(Token::Text(mut text)) => {
                    while let Some(Token::Text(more)) =
                        tokens.next_if(|token| matches!(token, Token::Text(_)))
                    {
                        text.push_str(&more);
                    }
                    Argument::Text(text)
                }
                other => return Err(format!("{other:?} in a row of {macro_name}")),
            });
            match tokens.next() {
                Some(Token::Mark(',')) => continue,
                Some(Token::Mark(')')) => break,
                other => return Err(format!("{other:?} after an argument of {macro_name}")),
            }
        }
        rows.push(Row { macro_name, arguments });
    }
    Ok(rows)
}

/// Name, words, and the knobs that differ from their defaults.
pub type Strategy = (String, String, Vec<(String, u64)>);

/// The rows of strategies.def: HAK_STRATEGY(name, control, "words", K(knob, value) K(knob, value) ...).
pub fn strategies_parse(source: &str) -> Result<Vec<Strategy>, String> {
    let mut tokens = tokens_read(source)?.into_iter().peekable();
    let mut rows = Vec::new();
    while let Some(token) = tokens.next() {
        let mut next = || tokens.next().ok_or("a row does not end".to_owned());
        let head = [token, next()?, next()?, next()?, next()?, next()?, next()?];
        let [Token::Word(_), Token::Mark('('), Token::Word(name), _, Token::Number(_), _, Token::Text(words)] =
            head
        else {
            return Err(format!("{head:?} begins no strategy"));
        };
        let mut knobs = Vec::new();
        let mut last = next()?;
        if last == Token::Mark(',') {
            last = next()?;
        }
        while last != Token::Mark(')') {
            let knob = [last, next()?, next()?, next()?, next()?, next()?];
            let [
                Token::Word(_),
                Token::Mark('('),
                Token::Word(option),
                _,
                Token::Number(value),
                Token::Mark(')'),
            ] = knob
            else {
                return Err(format!("{knob:?} is no knob of {name}"));
            };
            knobs.push((option, value));
            last = next()?;
        }
        rows.push((name, words, knobs));
    }
    Ok(rows)
}

fn tokens_read(source: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").ok_or("a comment does not end")?;
            rest = &comment[end + 2..];
        } else if rest.starts_with("//") || rest.starts_with('#') {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(literal) = rest.strip_prefix('"') {
            let (text, after) = string_read(literal)?;
            tokens.push(Token::Text(text));
            rest = after;
        } else if first.is_ascii_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let word = &rest[..end];
            tokens.push(if first.is_ascii_digit() {
                Token::Number(number_read(word)?)
            } else {
                Token::Word(word.to_owned())
            });
            rest = &rest[end..];
        } else if "(),".contains(first) {
            tokens.push(Token::Mark(first));
            rest = &rest[1..];
        } else {
            return Err(format!("'{first}' is no part of a row"));
        }
    }
    Ok(tokens)
}

/// The text of a C string whose opening quote was read, and what follows its closing one.
fn string_read(literal: &str) -> Result<(String, &str), String> {
    let mut text = String::new();
    let mut characters = literal.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((text, &literal[at + 1..])),
            '\\' => match characters.next() {
                Some((_, 'n')) => text.push('\n'),
                Some((_, escaped @ ('"' | '\\' | '\''))) => text.push(escaped),
                other => return Err(format!("{other:?} after a backslash")),
            },
            _ => text.push(character),
        }
    }
    Err("a string does not end".to_owned())
}

fn number_read(word: &str) -> Result<u64, String> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let number = match digits.strip_prefix("0x") {
        Some(hexadecimal) => u64::from_str_radix(hexadecimal, 16),
        None => digits.parse(),
    };
    number.map_err(|_| format!("'{word}' is not a number"))
}
