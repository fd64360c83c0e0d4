#!/bin/sh
# A loop from the shell: report attempts, do what the service decides, ask what was learnt.
#
#   HEEDFUL_URL=http://127.0.0.1:8765 HEEDFUL_KEY=heedful_… sh loop.sh
#
# HEEDFUL_KEY may be left out where the service listens on this machine only.
set -eu
url=${HEEDFUL_URL:-http://127.0.0.1:8765}
loop=invoice-$$

# call METHOD PATH [JSON]: the answer on stdout; an error of the service ends the script.
# The key goes in by stdin, so that no list of processes shows it. A POST has a key of its own that
# stays the same however often curl tries, so that nothing is done twice.
call() {
  printf '%s' "${HEEDFUL_KEY:+Authorization: Bearer $HEEDFUL_KEY}" |
    curl --silent --show-error --fail-with-body --header @- --request "$1" "$url$2" \
      --retry 5 --retry-connrefused --max-time 30 \
      --header 'Content-Type: application/json' \
      --header "Idempotency-Key: $(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" \
      ${3:+--data "$3"}
  echo
}

echo 'begin a loop: at most 3 attempts'
call PUT "/v1/loops/$loop" '{"task": "Write the total of the invoice.", "policy": "default, attempts.limit=3"}' > /dev/null

answer='12.5'
for attempt in 1 2 3; do
  # Your own check would stand here: it says what is wrong, and how to mend it.
  case $answer in
    *EUR) findings='' ;;
    *) findings='{"check": "currency", "message": "no currency", "fix": "write EUR after the number"}' ;;
  esac
  verdict=$(call PUT "/v1/loops/$loop/attempts/$attempt" \
    "{\"output\": \"$answer\", \"evaluation\": {\"findings\": [$findings]}}")
  case $verdict in
    *'"decision":"done"'*) echo "attempt $attempt: $answer, done"; break ;;
  esac
  echo "attempt $attempt: $answer, again"
  answer='12.50 EUR' # your model would be asked again, with the feedback of the verdict
done

echo 'why:'
call GET "/v1/loops/$loop/explain" | sed 's/.*"text":"\([^"]*\)".*/\1/' | sed 's/\\n/\n/g'

echo 'remember an error, and ask whether it was seen:'
call POST /v1/reflections '{"error_type": "Timeout", "text": "no answer from 10.0.0.7 within 30 s", "lesson": "Ask again with a smaller page."}'
call POST /v1/seen '{"error_type": "Timeout", "text": "no answer from 10.0.0.9 within 45 s"}'
