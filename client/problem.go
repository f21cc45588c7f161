package client

import (
	"fmt"
	"net/http"
)

// Error implements error.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
	}
	if p.Hint != "" {
		text += " " + p.Hint
	}
	return text
}
