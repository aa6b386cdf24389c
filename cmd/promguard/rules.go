// Copyright The promguard Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"

	"github.com/promguard/promguard/internal/cli"
	"github.com/promguard/promguard/internal/didyoumean"
	"github.com/promguard/promguard/internal/relabel"
	"github.com/promguard/promguard/internal/yamlerr"
)

// rulesCommands declares the subcommands that show, inject and check drop rules.
func rulesCommands(app *kingpin.Application, stdout, stderr io.Writer) []subcommand {
	rules := app.Command("rules", "Show and check the drop rules that the patched Prometheus applies to every scrape.")

	printCmd := rules.Command("print", "Print a profile as configuration for a Prometheus without these rules built in.")
	printProfile, printFile := profileFlags(printCmd)
	format := printCmd.Flag("format", "Form of the output, one of "+strings.Join(relabel.Formats(), ", ")+".").
		Default(relabel.FormatMetricRelabelConfigs).HintOptions(relabel.Formats()...).String()

	listCmd := rules.Command("list", "List a profile's rules: id, class, scope, reason.")
	listProfile, listFile := profileFlags(listCmd)
	listOutput := cli.Output(listCmd)

	return []subcommand{
		{clause: printCmd, run: func() error {
			p, err := loadProfile(*printProfile, *printFile)
			if err != nil {
				return err
			}
			return relabel.Render(stdout, p, *format)
		}},
		{clause: listCmd, run: func() error {
			p, err := loadProfile(*listProfile, *listFile)
			if err != nil {
				return err
			}
			return listRules(stdout, p, *listOutput)
		}},
		rulesInjectCommand(rules, stdout, stderr),
		rulesCheckCommand(rules, stdout, stderr),
		rulesEstimateCommand(rules, stdout, stderr),
		rulesSuggestCommand(rules, stdout, stderr),
	}
}

// profileFlags declares how rules are named: by profile or by file. Not given, they
// are those that the patched Prometheus applies by default.
func profileFlags(cmd *kingpin.CmdClause) (profile, file *string) {
	profile = cmd.Flag("profile", "Profile of drop rules, one of "+strings.Join(relabel.ProfileNames(), ", ")+".").
		Default(relabel.ProfileRecommended).HintOptions(relabel.ProfileNames()...).String()
	file = cmd.Flag("rules", "File with drop rules, instead of a profile.").PlaceHolder("FILE").String()
	return profile, file
}

func loadProfile(profile, file string) (relabel.Profile, error) {
	if file == "" {
		p, err := relabel.ProfileByName(profile)
		return p, cli.Misuse(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return relabel.Profile{}, err
	}
	p, err := relabel.ParseProfile(file, text)
	return p, didyoumean.Field(yamlerr.Locate(text, err), relabel.FileKeys{})
}

// listedRule is the JSON of a rule in a list.
type listedRule struct {
	ID     string        `json:"id"`
	Class  relabel.Class `json:"class"`
	Jobs   []string      `json:"jobs,omitempty"` // none: every job
	Reason string        `json:"reason"`
}

func listRules(w io.Writer, p relabel.Profile, output string) error {
	if output == cli.JSON {
		list := []listedRule{}
		for _, r := range p.Rules {
			list = append(list, listedRule{r.ID, r.Class, r.Jobs, r.Reason})
		}
		return cli.WriteJSON(w, list)
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, "ID\tCLASS\tSCOPE\tREASON")
	for _, r := range p.Rules {
		scope := "every job"
		if n := len(r.Jobs); n > 0 {
			scope = fmt.Sprintf("%d jobs", n)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", r.ID, r.Class, scope, r.Reason)
	}
	return tw.Flush()
}
