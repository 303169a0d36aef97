package keys

import (
	"errors"
	"path"
	"strings"
)

// setCommand is command="WORDS", the one option that may repeat.
func setCommand(client *AuthorizedClient, opt option) error {
	if opt.operator != "=" {
		return errors.New(`want command="PATH WORDS", once for each command`)
	}
	command, err := parseCommand(opt.value)
	if err != nil {
		return err
	}
	r := &client.Rights
	r.AnyCommand, r.TakeOver = false, false
	r.Commands = append(r.Commands, command)
	return nil
}

// parseCommand reads WORDS. Its errors repeat nothing of them: they may hold what is nobody else's business.
func parseCommand(text string) (Command, error) {
	words, err := splitWords(text)
	if err != nil {
		return Command{}, err
	}
	var c Command
	if last := len(words) - 1; last > 0 && words[last] == (commandWord{text: "*"}) {
		words, c.More = words[:last], true
	}
	if len(words) == 0 {
		return Command{}, errors.New("no words: want the absolute path of a file, then its arguments")
	}
	for _, w := range words {
		c.Words = append(c.Words, w.text)
	}
	if file := c.Words[0]; !path.IsAbs(file) || path.Clean(file) != file || file == "/" {
		return Command{}, errors.New("the first word is not the absolute path of a file without . and .., // and a final /")
	}
	return c, nil
}

// commandWord is a word of a command. A quoted * stands for itself.
type commandWord struct {
	text   string
	quoted bool
}

// splitWords splits at spaces. Between single quotes a space belongs to the word, and all else stands for itself everywhere:
// there is no escape, so that no word can hold a single quote.
func splitWords(text string) ([]commandWord, error) {
	var words []commandWord
	var word strings.Builder
	begun, quoted, inQuotes := false, false, false
	end := func() {
		if begun {
			words = append(words, commandWord{word.String(), quoted})
		}
		word.Reset()
		begun, quoted = false, false
	}
	for _, c := range []byte(text) {
		switch {
		case c == '\'':
			inQuotes, begun, quoted = !inQuotes, true, true
		case c == ' ' && !inQuotes:
			end()
		case c == '\t' && !inQuotes: // it looks like what separates words
			return nil, errors.New("tab outside single quotes: words are separated by spaces")
		default:
			begun = true
			word.WriteByte(c)
		}
	}
	if inQuotes {
		return nil, errors.New("single quote is not closed")
	}
	end()
	return words, nil
}
