package steps

import (
	"encoding/json"
	"fmt"
	"strconv"

	"auspex/schemas"
)

// InstallWith are the parameters of a step that installs: texts, as those of every step. What is given to the template was
// checked when it was asked for.
func InstallWith(in *schemas.Install) (map[string]string, error) {
	with := map[string]string{"template": in.Template, "version": strconv.FormatInt(in.TemplateVersion, 10)}
	for name, v := range in.Parameters {
		text, is := v.(string)
		if !is {
			b, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("parameter %s of the template %s: %w", name, in.Template, err)
			}
			text = string(b)
		}
		with["parameters."+name] = text
	}
	return with, nil
}
