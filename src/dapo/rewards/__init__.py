"""Text -> Score: the DAPO reference rule, an exact-number rule, and users' python functions in killable processes."""
