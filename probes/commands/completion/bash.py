"""Completion in bash, also of words with `:` or `=`, which bash splits into several words."""

from __future__ import annotations

import os

from click.shell_completion import BashComplete, add_completion_class, split_arg_string

# The line up to the cursor goes to Python, which returns whole words. bash replaces only what is after the last `:` or `=` of a word,
# where COMP_WORDBREAKS has these characters, so the part before is cut off the words again. Values are quoted for the shell.
SOURCE = """\
%(complete_func)s() {
    local line="${COMP_LINE:0:COMP_POINT}" IFS=$'\\n' type value word cut=""
    word="${line##*[[:space:]]}"
    [[ $word == *:* && $COMP_WORDBREAKS == *:* ]] && cut="${word%%"${word##*:}"}"
    [[ $word == *=* && $COMP_WORDBREAKS == *=* && ${#cut} -le ${#word} ]] && {
        local behind="${word%%"${word##*=}"}"
        (( ${#behind} > ${#cut} )) && cut="$behind"
    }
    COMPREPLY=()
    while IFS=',' read -r type value; do
        if [[ $type == dir || $type == file ]]; then
            compopt -o filenames
            local -a found
            mapfile -t found < <(compgen -"${type:0:1}" -- "$word")
            COMPREPLY+=("${found[@]#"$cut"}")
        elif [[ $type == plain ]]; then
            printf -v value '%%q' "$value"
            COMPREPLY+=("${value#"$cut"}")
        fi
    done < <(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1")
}

%(complete_func)s_setup() {
    complete -o nosort -F %(complete_func)s %(prog_name)s
}

%(complete_func)s_setup;
"""


class BashWords(BashComplete):
    """Read the words from the command line itself."""

    name = "bash"
    source_template = SOURCE

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words after `probes` up to the cursor, and the one that is being typed."""
        line = os.environ.get("COMP_LINE")
        if line is None:  # a shell may still have the script of release 0.1.0
            return super().get_completion_args()
        words = split_arg_string(line)
        incomplete = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], incomplete


def register() -> None:
    """Let `_PROBES_COMPLETE=bash_source probes` print this script."""
    add_completion_class(BashWords)
