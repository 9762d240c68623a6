// ddpxx/config/show/completion_text.hpp — completion scripts for three shells, with words in @...@ that completion.hpp
// replaces.
//
// A word on the command line is an option, the value of an option, a key, or a key with its value. Each script checks
// first whether an option stands before the word, then whether the word is a key with a value, then offers keys,
// options and files, and commands for the first word. A value that has no list of values may be the name of a file.
#pragma once

#include <string_view>

namespace ddpxx::detail {

inline constexpr std::string_view kBashCompletion =
    R"(# Completion of @PROGRAM@ for bash. In ~/.bashrc: source <(@PROGRAM@ --completion bash)
@NAME@() {
  local word=${COMP_WORDS[COMP_CWORD]} before= key= stem= candidate quoted IFS=$'\n'
  local -a candidates=()
  ((COMP_CWORD > 0)) && before=${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # Unless it was told otherwise, bash takes key=value for three words, and completes the third.
  if [[ $word == '=' ]]; then
    key=$before word=
  elif [[ $before == '=' ]]; then
    key=${COMP_WORDS[COMP_CWORD - 2]}
  elif [[ $word == *=* ]]; then
    key=${word%%=*} word=${word#*=}
    stem=$key=
  fi
  case ${key:-$before} in
    -cn | --config-name)
      candidates=($(for candidate in '!*.yaml' '!*.yml' '!*.json' '!*.py'; do
                      compgen -f -X "$candidate" -- "$word"
                    done
                    compgen -d -S / -- "$word"))
      compopt -o filenames 2>/dev/null ;;
    -cp | --config-path | -cd | --config-dir)
      candidates=($(compgen -d -S / -- "$word"))
      compopt -o filenames 2>/dev/null ;;
    -c | --cfg) candidates=(job) ;;
    --errors) candidates=(text json) ;;
    --completion) candidates=(bash zsh fish) ;;
    -h | --help) candidates=(@PATHS@) ;;
    *)
      case ${key#--} in
        '')
          candidates=(@KEYS@ @OPTIONS@
                      $(compgen -d -S / -- "$word")
                      $(for candidate in '!*.yaml' '!*.yml' '!*.json' '!*.py'; do
                          compgen -f -X "$candidate" -- "$word"
                        done))
          ((COMP_CWORD == 1)) && candidates+=(@COMMANDS@) ;;
@VALUES@
        *) [[ $stem ]] && candidates=($(compgen -f -- "$word")) ;;
      esac ;;
  esac
  # Without a candidate, bash completes the name of a file.
  for candidate in "${candidates[@]}"; do
    [[ $candidate == "$word"* ]] || continue
    printf -v quoted %q "$candidate"
    [[ $candidate == '~'* ]] && quoted=\~${quoted#\\~}  # the shell finds a home folder behind a bare ~ only
    COMPREPLY+=("$stem$quoted")
  done
  [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace 2>/dev/null
  return 0
}
complete -o bashdefault -o default -F @NAME@ @PROGRAM@
)";

inline constexpr std::string_view kZshCompletion = R"(#compdef @PROGRAM@
# Completion of @PROGRAM@ for zsh. In ~/.zshrc, after compinit: source <(@PROGRAM@ --completion zsh)
@NAME@() {
  local word=${words[CURRENT]} before=${words[CURRENT - 1]} key=
  if [[ $word == *=* ]]; then
    key=${word%%=*}
    compset -P 1 '*='
  fi
  case ${key:-$before} in
    -cn | --config-name) _files -g '*.(yaml|yml|json|py)' ;;
    -cp | --config-path | -cd | --config-dir) _files -/ ;;
    -c | --cfg) compadd -- job ;;
    --errors) compadd -- text json ;;
    --completion) compadd -- bash zsh fish ;;
    -h | --help) compadd -- @PATHS@ ;;
    *)
      case ${key#--} in
        '')
          compadd -S '' -- @KEYS@
          compadd -- @OPTIONS@
          ((CURRENT == 2)) && compadd -- @COMMANDS@
          _files ;;
@VALUES@
        *) _files ;;
      esac ;;
  esac
}
if [[ ${funcstack[1]} == @NAME@ ]]; then
  @NAME@ "$@"
else
  compdef @NAME@ @PROGRAM@
fi
)";

inline constexpr std::string_view kFishCompletion =
    R"(# Completion of @PROGRAM@ for fish. In config.fish: @PROGRAM@ --completion fish | source
function @NAME@
    set -l word (commandline -ct)
    set -l before (commandline -opc)[-1]
    set -l stem
    if string match -q -- '*=*' "$word"
        set before (string split -m 1 = -- "$word")[1]
        set stem "$before="
        set word (string replace -- "$stem" '' "$word")
    end
    switch "$before"
        case -cn --config-name
            for file in "$word"*.yaml "$word"*.yml "$word"*.json "$word"*.py "$word"*/
                echo "$stem$file"
            end
        case -cp --config-path -cd --config-dir
            for file in "$word"*/
                echo "$stem$file"
            end
        case -c --cfg
            echo "$stem"job
        case --errors
            printf "$stem%s\n" text json
        case --completion
            printf "$stem%s\n" bash zsh fish
        case '*'
            if test -z "$stem"
                printf '%s\t%s\n' @KEYS@
                printf '%s\n' @OPTIONS@
                test (count (commandline -opc)) = 1; and printf '%s\t%s\n' @COMMANDS@
                __fish_complete_path "$word"
                return
            end
            switch (string replace -r '^--' '' -- "$before")
@VALUES@
                case '*'
                    for file in (__fish_complete_path "$word")
                        echo "$stem$file"
                    end
            end
    end
end
complete -c @PROGRAM@ -f -a '(@NAME@)'
)";

}  // namespace ddpxx::detail
