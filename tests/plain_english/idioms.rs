//! Idioms that a reader stumbles over, what to write instead, and examples of both.

/// One idiom.
pub(super) struct Idiom {
    pub name: &'static str,
    /// A regular expression, in any case of letters.
    pub pattern: &'static str,
    /// Beginnings of hits that are right after all.
    pub except: &'static [&'static str],
    /// Texts directly before a hit that make it right.
    pub after: &'static [&'static str],
    pub instead: &'static str,
    /// Only for texts that the command line prints.
    pub help_only: bool,
    pub wrong: &'static [&'static str],
    pub fine: &'static [&'static str],
}

const fn idiom(name: &'static str, pattern: &'static str, instead: &'static str) -> Idiom {
    Idiom { name, pattern, except: &[], after: &[], instead, help_only: false, wrong: &[], fine: &[] }
}

pub(super) const IDIOMS: &[Idiom] = &[
    Idiom {
        except: &[
            "stands for",
            "stand for",
            "stand in for",
            "stands in for",
            "stand alone",
            "stands alone",
            "stand-alone",
            "stand-in",
        ],
        wrong: &["policy.mine: stands twice", "may stand several times", "what was lost stands in gaps"],
        fine: &["TTFT stands for time to first token", "the standard error", "a misunderstanding"],
        ..idiom("stands", r"\b(stands?|stood)\b", "is, appears, is listed, applies")
    },
    Idiom {
        wrong: &["once its tokens were told", "what was said", "the engine told us", "as said above"],
        except: &["told apart"],
        fine: &["they can be told apart", "the manual says so", "the engine reported", "aforesaid"],
        ..idiom("said, told", r"\b(said|told)\b", "reported, logged, sent, given, stated")
    },
    Idiom {
        wrong: &["mend `url`", "it mends itself", "mended at 12"],
        fine: &["fix `url`", "amend the commit", "recommended", "tremendous"],
        ..idiom("mend", r"\bmend(s|ed|ing)?\b", "fix, correct, check")
    },
    Idiom {
        except: &["so many as", "so many that", "so long as", "so long that", "so often that", "so few that"],
        wrong: &["every so many requests", "waits so long", "after so many seconds"],
        fine: &[
            "every Nth request",
            "so long as it runs",
            "so many that the queue is full",
            "also many",
            "so much dearer",
        ],
        ..idiom("so many, so long", r"\bso (many|long|often|few)\b", "the number itself, or N: every Nth request")
    },
    Idiom {
        wrong: &["whoever asks", "to whomever", "Whosoever"],
        fine: &["the client that asks", "whatever the load"],
        ..idiom("whoever", r"\bwho(m|so)?ever\b", "the client that, the replica that, anyone who")
    },
    Idiom {
        wrong: &["a port of its own", "threads of their own"],
        fine: &["its own port", "a separate port", "by itself"],
        ..idiom("of its own", r"\bof (its|their|his|her|our|your) own\b", "its own X, a separate X")
    },
    Idiom {
        wrong: &["used in place of the file", "takes the place of the one in the file", "took the place of"],
        fine: &["instead of the file", "replaces the one in the file", "edited in place", "in place; of these"],
        ..idiom("in place of", r"\b(in|tak(e|es|en|ing) the|took the) place of\b", "instead of; replaces")
    },
    Idiom {
        after: &["there ", "default ", "way ", "aim ", "goal "],
        except: &[
            "is to the",
            "is to a ",
            "is to an ",
            "are to the",
            "is to scale",
            "are to scale",
            "is to blame",
            "are to blame",
        ],
        wrong: &["X, which is to hold the API key", "requests are to be sent", "is not to be used"],
        fine: &[
            "must hold the API key",
            "the nearest is to the left",
            "as a is to b's",
            "has to be sent",
            "it is too long",
            "what there is to compose with",
            "the default is to wait",
        ],
        ..idiom("is to", r"\b(is|are|was|were) (not )?to [a-z]{2,}\b", "must, should, will; has to")
    },
    Idiom {
        wrong: &["by the hand of a script", "by hand of its digest"],
        fine: &["by hand", "written by hand"],
        ..idiom("by hand of", r"\bby (the )?hands? of\b", "by, using, from")
    },
    Idiom {
        wrong: &["that is past; name another", "the hour is past"],
        fine: &["is in the past", "is past its deadline"],
        except: &["is past its", "is past the", "are past the", "are past their"],
        ..idiom("is past", r"\b(is|are) past\b", "is in the past, has passed")
    },
    Idiom {
        wrong: &["name a time to come", "turns to come"],
        fine: &["the fix has to come first", "requests come"],
        except: &["to come from", "to come first", "to come back", "to come in", "to come with", "to come before"],
        ..idiom("to come", r"\b(time|times|turns|requests|hours|days|that is|are) to come\b", "future, later, next")
    },
    Idiom {
        wrong: &["requests are struck by the fault", "every Nth request is struck"],
        fine: &["strict", "the strike price"],
        ..idiom("struck", r"\b(struck|stricken)\b", "affected, hit; inject the fault into")
    },
    Idiom {
        wrong: &["seeds, from 1 on", "from line 3 on"],
        fine: &["from 1 to 5", "from 3 onwards", "from one on-line store"],
        except: &["from one on-line"],
        ..idiom("from 1 on", r"\bfrom (line )?(\d+|one) on\b", "1..=N, N or more, from N onwards")
    },
    Idiom {
        wrong: &["what was waited is taken for", "what was lost is counted"],
        fine: &["the lost rows are counted", "prints what was measured"],
        ..idiom(
            "what was lost",
            r"\bwhat (was|were|has been) (lost|waited|asked|left|held|kept)\b",
            "the lost rows, the elapsed time: name the noun",
        )
    },
    Idiom {
        wrong: &["is taken for its time", "they are taken for failures"],
        fine: &["time taken for a step", "is taken from the file"],
        ..idiom("is taken for", r"\b(is|are|was|were|be) taken for\b", "counts as, is recorded as, is treated as")
    },
    Idiom {
        wrong: &["`gorgo doctor` asks more", "the one that suits this request", "this one had its time"],
        fine: &["run `gorgo doctor`", "the selected replica", "asks for more time"],
        ..idiom(
            "asks more, suits",
            r"\basks? more\b|\bthat suits?\b|\bhad its time\b",
            "run …; the selected …; is late",
        )
    },
    Idiom {
        wrong: &["cache events begin anew", "made anew"],
        fine: &["begin again", "a new file"],
        ..idiom("anew", r"\banew\b", "again; restart, reload")
    },
    Idiom {
        wrong: &["not run for want of data", "for want of a plugin"],
        fine: &["because there is no data", "if you want to"],
        ..idiom("for want of", r"\bfor (want|lack) of\b", "because there is no; without")
    },
    Idiom {
        wrong: &["held against the engine's own", "it is held against", "hold it against"],
        fine: &["compared with the engine's own", "held back"],
        ..idiom("held against", r"\bh[eo]ld (\w+ )?against\b", "compared with, checked against")
    },
    Idiom {
        wrong: &["waits for ever", "kept for evermore"],
        fine: &["waits forever", "for every request"],
        ..idiom("for ever", r"\bfor ever(more)?\b", "forever; indefinitely")
    },
    Idiom {
        wrong: &["thereof", "the file wherein", "lest it fail", "nought", "whence it came"],
        fine: &["there", "where", "least", "the rest"],
        ..idiom(
            "old words",
            r"\b(thereof|therein|whereof|wherein|whereby|hereof|heretofore|whence|hence forth|lest|nought|naught)\b",
            "of it, in which, by which, so that … not, zero",
        )
    },
    Idiom {
        wrong: &["keys may be given as often as one likes", "as long as one likes", "if one wants"],
        fine: &["one of them", "at least one likes-column"],
        except: &["one likes-column"],
        ..idiom("one likes", r"\bone (likes|wants|wishes|pleases)\b", "repeatable; any number of times; you")
    },
    Idiom {
        wrong: &[
            "Whose turn it is",
            "What to print",
            "Whether it runs",
            "How many seeds",
            "Where it listens",
            "Its name",
        ],
        fine: &["Number of seeds", "Print the plan", "Wheregate", "Itself"],
        help_only: true,
        ..idiom(
            "question as help",
            r"^\s*(what|who|whose|where|whether|how (many|much|long|often|far)|its?)\b",
            "the noun (`Number of seeds`), or the verb (`Print the plan`)",
        )
    },
    Idiom {
        wrong: &["Sets one key", "Prints the plan", "Writes a report"],
        fine: &[
            "Set one key",
            "Settings file",
            "Process trace",
            "Runs to test on",
            "Prefix cache",
            "Replicas to use",
            "Requests per second",
        ],
        help_only: true,
        ..idiom(
            "help that describes",
            r"^\s*(sets|prints|writes|reads|shows|checks|sends|makes|lists|takes|gives|adds|uses|keeps|starts|stops|asks|puts|lets|overrides|replays|compares|serves)\b",
            "the imperative: Set, Print, Write",
        )
    },
];

/// Wordings of the first version, and better ones.
pub(super) const TODAY_AND_BETTER: &[(&str, &str)] = &[
    (
        "Sets one key over file and environment …; may stand several times",
        "Override one configuration key (wins over file and environment; repeatable)",
    ),
    ("too many requests wait for the replica that suits this one", "the selected replica's queue is full; retry later"),
    ("if no engine listens there, mend `url`; `gorgo doctor` asks more", "check `url`, or run `gorgo doctor`"),
    (
        "X, which is to hold the API key: no such environment variable, or not a key",
        "environment variable X (API key) is unset or not a valid header value",
    ),
    ("that is past; name a time to come", "`--start-at` is in the past"),
    ("Only every so many requests are struck by the fault", "Inject the fault into every Nth request"),
    ("How many seeds, from 1 on, or which: 101..105", "Number of seeds (1..=N), or a range such as 101..105"),
    (
        "can be written again; what was lost stands in gaps",
        "history database writable again; lost rows are listed in table `gaps`",
    ),
    (
        "this one had its time, so what was waited is taken for its time to the first token",
        "if `late`, record the elapsed time as a censored (lower-bound) TTFT, so that replicas that always lose are still \
         learned from",
    ),
];
